-- Gives back of a token_bucket what a request was charged, less what has flowed in since, which may have been clipped at the
-- capacity.
--
-- Returns `back`, the permits that were given back
-- Writes  the bucket's fields, as policies/token_bucket.lua does
--
-- Uses    `bucket`, `fields`, `tokens`, `refilled_at`, `fraction`, `limit`, `rate` of that file; `cost`; `mark`, the time of the
--         charge in ms; `now`, `call`, `format`, `ceil`, `min`, `max`
local back = max(min(cost - ceil(max(now - mark, 0) * rate / 1000), limit - tokens), 0)
if back > 0 then
  call('hset', bucket, 'tokens', format('%d', tokens + back), 'last_refill_timestamp', format('%d', refilled_at))
  if fraction > 0 then
    call('hset', bucket, 'last_refill_fraction', format('%d', fraction))
  elseif fields[3] then
    call('hdel', bucket, 'last_refill_fraction')
  end
end
