-- Tokens that come in by a quota for each period; a request takes its cost out of them.
--
-- KEYS    bucket
-- numbers 1  capacity
--         2  quota, in tokens a period
--         3  period in s
-- Returns 4  tokens left
--         5  timestamp in s
--         6  its fraction, in parts of 1 / quota s
-- Writes  at each grant and each denial all fields: capacity, quota, period; remain; timestamp in s, moved by the time that
--         the tokens which came in took; where that is no whole number of s, the rest in timestamp_fraction, in parts of
--         1 / quota s. And the time to live, twice what an empty bucket takes to fill, in whole s: a peer that sets none
--         may have taken tokens meanwhile

local bucket = KEYS[1]
local limit, quota, period = unpack_numbers('<ddd', numbers)
local second = floor(now / 1000)

local fields = call('hmget', bucket, 'remain', 'timestamp', 'timestamp_fraction')
local remain, timestamp, fraction = limit, second, 0
if fields[1] and fields[2] then
  remain, timestamp = finite(fields[1]), finite(fields[2])
  if fields[3] then
    fraction = finite(fields[3])
  end
  if not (remain and timestamp and fraction) then
    return redis.error_reply('BADSTATE a field of the bucket is not a number')
  end
  remain = max(min(remain, limit), 0)
  fraction = min(max(fraction, 0), quota - 1)
  local elapsed = max(second - timestamp, 0)
  if elapsed >= ceil(((limit - remain) * period + fraction) / quota) then
    remain, timestamp, fraction = limit, second, 0
  else
    -- Only whole tokens come in, and the time of the rest goes on counting: in the long run the quota is exact.
    local came_in = max(floor((elapsed * quota - fraction) / period), 0)
    local took = fraction + came_in * period
    remain, timestamp, fraction = remain + came_in, timestamp + floor(took / quota), took % quota
  end
elseif not (fields[1] or fields[2]) and call('exists', bucket) == 1 then
  return redis.error_reply('BADSTATE the hash is no bucket of a quota')
end
local room = remain

-- grant_runs.lua

if taken > 0 or denied_cost then -- a peer reads the numbers that were asked by
  call('hset', bucket, 'capacity', format('%d', limit), 'remain', format('%d', remain - taken),
    'period', format('%d', period), 'quota', format('%d', quota), 'timestamp', format('%d', timestamp))
  if fraction > 0 then
    call('hset', bucket, 'timestamp_fraction', format('%d', fraction))
  elseif fields[3] then
    call('hdel', bucket, 'timestamp_fraction')
  end
  call('pexpire', bucket, format('%d', 2 * ceil(limit * period / quota) * 1000))
end
return pack('<dddddd', server_now, now, 0, remain, timestamp, fraction)
