-- Gives back of a token_bucket what a request was charged, less what has arrived since: the
-- capacity may have cut that off.
--
-- Returns `given_back`, the permits that were given back
-- Writes  the bucket's fields, as shared/token_fields.lua does
--
-- Uses    `bucket`, `fields`, `tokens`, `refilled_at`, `fraction`, `limit`, `rate` of
--         policies/token_bucket.lua; `cost`; `mark`, the time of the charge in ms; `now`, `call`,
--         `format`, `ceil`, `min`, `max`
local given_back = max(min(cost - ceil(max(now - mark, 0) * rate / 1000), limit - tokens), 0)
if given_back > 0 then
  local taken = -given_back
  --! include shared/token_fields.lua
end
