-- Gives back of a quota_bucket what a request was charged, less what has arrived since: the
-- capacity may have cut that off.
--
-- Returns `given_back`, the permits that were given back
-- Writes  the bucket's fields, as shared/quota_fields.lua does
--
-- Uses    `bucket`, `fields`, `tokens`, `refilled_at`, `fraction`, `limit`, `rate`, `period`,
--         `present` of policies/quota_bucket.lua; `cost`; `mark`, the time of the charge in ms;
--         `call`, `format`, `floor`, `ceil`, `min`, `max`
local elapsed = max(present - floor(mark / 1000), 0)
local given_back = max(min(cost - ceil(elapsed * rate / period), limit - tokens), 0)
if given_back > 0 then
  local taken = -given_back
  --! include shared/quota_fields.lua
end
