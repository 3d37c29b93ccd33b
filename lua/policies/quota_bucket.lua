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
local limit, rate, period = unpack_numbers('<ddd', numbers)
local present, least = floor(now / 1000), 0

local fields = call('hmget', bucket, 'remain', 'timestamp', 'timestamp_fraction')
if not (fields[1] or fields[2]) and call('exists', bucket) == 1 then
  return redis.error_reply('BADSTATE the hash is not a quota bucket')
end
--! include shared/refill.lua
local room = tokens
--! end

--! include shared/grant_runs.lua

--! part state
local state = pack('<dddddd', server_now, now, 0, tokens, refilled_at, fraction)
--! end

--! part write
local lasting, is_there, is_renewed = bucket, fields[1] or fields[2], taken > 0 or denied_cost
local needed = ceil(((limit - tokens + taken) * period + fraction) / rate) * 1000
  + min(refilled_at * 1000 - now, 0)
if is_renewed then
  --! include shared/quota_fields.lua
  needed = max(needed, 2 * ceil(limit * period / rate) * 1000)
end
local extended = needed
--! include shared/life.lua
return state
--! end
