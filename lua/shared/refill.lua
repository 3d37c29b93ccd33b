-- Brings a bucket up to date that tokens enter at a steady rate, as src/policies/refill.rs does.
-- Only whole tokens enter, and the time left over is kept: in the long run the rate is exact.
--
-- Uses    `fields`, the stored tokens, time of the last refill, and fraction of that time; `limit`,
--         the capacity; `rate`, the tokens that enter per `period`; `present`, now in the unit of
--         these times; `least`, the fewest tokens that a bucket can have; `finite`, `floor`,
--         `ceil`, `max`, `min`
-- Sets    `tokens`, `refilled_at`; `fraction` of that time, in units of 1 / rate
local tokens, refilled_at, fraction = limit, present, 0
if fields[1] and fields[2] then
  tokens, refilled_at = finite(fields[1]), finite(fields[2])
  if fields[3] then
    fraction = finite(fields[3])
  end
  if not (tokens and refilled_at and fraction) then
    return redis.error_reply('BADSTATE a field of the bucket is not a number')
  end
  tokens = max(min(tokens, limit), least)
  fraction = min(max(fraction, 0), rate - 1)
  local elapsed = max(present - refilled_at, 0)
  -- Only a wrong clock can have stored a time that is further ahead than the bucket takes to fill.
  if elapsed >= ceil(((limit - tokens) * period + fraction) / rate)
    or refilled_at - present > ceil(limit * period / rate) then
    tokens, refilled_at, fraction = limit, present, 0
  else
    local refilled = max(floor((elapsed * rate - fraction) / period), 0)
    local refill_time = fraction + refilled * period -- in units of 1 / rate
    tokens = tokens + refilled
    refilled_at, fraction = refilled_at + floor(refill_time / rate), refill_time % rate
  end
end
