-- Brings a bucket up to date into which tokens come at a steady rate, as src/policies/refill.rs
-- does. Only whole tokens come in, and the remaining time is kept: in the long run the rate is
-- exact.
--
-- Uses    `fields`, the tokens, the time of the last refill and its fraction as they are stored;
--         `limit`, the capacity; `rate`, the tokens that come in with each `period`; `present`, the
--         time now in the unit of these times; `least`, the fewest tokens that a bucket can have;
--         `finite`, `floor`, `ceil`, `max`, `min`
-- Sets    `tokens`, `refilled_at`; `fraction` of the time, in units of 1 / rate
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
  -- Only a clock that was wrong can have written a time that is further ahead than the bucket takes
  -- to fill.
  if elapsed >= ceil(((limit - tokens) * period + fraction) / rate)
    or refilled_at - present > ceil(limit * period / rate) then
    tokens, refilled_at, fraction = limit, present, 0
  else
    local refilled = max(floor((elapsed * rate - fraction) / period), 0)
    local took = fraction + refilled * period
    tokens, refilled_at, fraction = tokens + refilled, refilled_at + floor(took / rate), took % rate
  end
end
