-- Gives back of a token_bucket what a request was charged, less what has flowed in since, which may have been clipped at the
-- capacity.
--
-- Returns `back`, the permits that were given back
-- Writes  the bucket's fields, as shared/token_fields.lua does
--
-- Uses    `bucket`, `fields`, `tokens`, `refilled_at`, `fraction`, `limit`, `rate` of that file; `cost`; `mark`, the time of the
--         charge in ms; `now`, `call`, `format`, `ceil`, `min`, `max`
local back = max(min(cost - ceil(max(now - mark, 0) * rate / 1000), limit - tokens), 0)
if back > 0 then
  local taken = -back
  --! include shared/token_fields.lua
end
