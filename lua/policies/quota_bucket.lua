-- Tokens that arrive at a quota for each period; a request takes its cost in tokens.
--
-- KEYS    bucket
-- numbers 1  capacity
--         2  quota, in tokens per period
--         3  period in s
-- Returns 4  tokens
--         5  timestamp in s
--         6  its fraction, in units of 1 / quota s
-- Writes  at each grant and each denial all fields: capacity, quota, period; remain; timestamp in s, advanced by the time
--         that the refilled tokens took; if that is no whole number of s, the remainder in timestamp_fraction, in units
--         of 1 / quota s. And the time to live, twice the time that an empty bucket takes to fill, in whole s: in it a peer
--         that sets none may have taken tokens. As shared/life.lua says, it is never shortened, and lasts until the bucket
--         is full

--! include shared/limits.lua
--! include shared/policy.lua
--! include shared/finite.lua
--! include shared/one_target.lua

--! part read
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
  -- Only a clock that was wrong can have written a time that is further ahead than the bucket takes to fill.
  if elapsed >= ceil(((limit - remain) * period + fraction) / quota) or timestamp - second > ceil(limit * period / quota) then
    remain, timestamp, fraction = limit, second, 0
  else
    -- Only whole tokens are added, and the remaining time is kept: in the long run the quota is exact.
    local refilled = max(floor((elapsed * quota - fraction) / period), 0)
    local took = fraction + refilled * period
    remain, timestamp, fraction = remain + refilled, timestamp + floor(took / quota), took % quota
  end
elseif not (fields[1] or fields[2]) and call('exists', bucket) == 1 then
  return redis.error_reply('BADSTATE the hash is not a quota bucket')
end
local room = remain
--! end

--! include shared/grant_runs.lua

--! part state
local state = pack('<dddddd', server_now, now, 0, remain, timestamp, fraction)
--! end

--! part write
local lasting, is_there, is_renewed = bucket, fields[1] or fields[2], taken > 0 or denied_cost
local needed = ceil(((limit - remain + taken) * period + fraction) / quota) * 1000 + min(timestamp * 1000 - now, 0)
if is_renewed then
  --! include shared/quota_fields.lua
  needed = max(needed, 2 * ceil(limit * period / quota) * 1000)
end
local extended = needed
--! include shared/life.lua
return state
--! end
