-- Tokens that come in at a steady rate; a request takes its cost out of them.
--
-- KEYS    bucket
-- numbers 1  capacity
--         2  rate, in tokens a second
-- Returns 4  tokens left
--         5  time of the last refill in ms
--         6  its fraction, in parts of 1 / rate ms
-- Writes  where tokens were taken, the bucket's fields and its time to live, twice what an empty bucket takes to fill:
--         tokens; last_refill_timestamp in ms, moved by the time that the tokens which came in took; where that is no
--         whole number of ms, the rest in last_refill_fraction, in parts of 1 / rate ms

local bucket = KEYS[1]
local limit, rate = unpack_numbers('<dd', numbers)

local fields = call('hmget', bucket, 'tokens', 'last_refill_timestamp', 'last_refill_fraction')
local tokens, refilled_at, fraction = limit, now, 0
if fields[1] and fields[2] then
  tokens, refilled_at = finite(fields[1]), finite(fields[2])
  if fields[3] then
    fraction = finite(fields[3])
  end
  if not (tokens and refilled_at and fraction) then
    return redis.error_reply('BADSTATE a field of the bucket is not a number')
  end
  tokens = min(tokens, limit)
  fraction = min(max(fraction, 0), rate - 1)
  local elapsed = max(now - refilled_at, 0)
  if elapsed >= ceil(((limit - tokens) * 1000 + fraction) / rate) then
    tokens, refilled_at, fraction = limit, now, 0
  else
    -- Only whole tokens come in, and the time of the rest goes on counting: in the long run the rate is exact.
    local came_in = max(floor((elapsed * rate - fraction) / 1000), 0)
    local took = fraction + came_in * 1000
    tokens, refilled_at, fraction = tokens + came_in, refilled_at + floor(took / rate), took % rate
  end
elseif not (fields[1] or fields[2]) and call('exists', bucket) == 1 then
  return redis.error_reply('BADSTATE the hash is no bucket of tokens')
end
local room = tokens

-- grant_runs.lua

if taken > 0 then
  if fraction > 0 then
    call('hset', bucket, 'tokens', format('%d', tokens - taken), 'last_refill_timestamp', format('%d', refilled_at),
      'last_refill_fraction', format('%d', fraction))
  else
    call('hset', bucket, 'tokens', format('%d', tokens - taken), 'last_refill_timestamp', format('%d', refilled_at))
    if fields[3] then
      call('hdel', bucket, 'last_refill_fraction')
    end
  end
  call('pexpire', bucket, format('%d', ceil(2 * limit * 1000 / rate)))
end
return pack('<dddddd', server_now, now, 0, tokens, refilled_at, fraction)
