-- Tokens that arrive at a quota for each period; a request takes its cost in tokens.
--
-- KEYS    bucket
-- numbers 1  capacity
--         2  quota, in tokens per period
--         3  period in s
-- Returns 4  tokens
--         5  timestamp in s
--         6  its fraction, in units of 1 / quota s
-- Writes  at each grant and each denial all fields: capacity, quota, period; remain; timestamp in
--         s, advanced by the time that the refilled tokens took; in timestamp_fraction the rest of
--         that time, in units of 1 / quota s. And the time to live in whole s: twice the
--         time that an empty bucket takes to fill, in which a peer that sets none may take tokens;
--         or longer, as shared/life.lua says: until the bucket is full

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
local writes = taken > 0 or denied_cost
local life_key, key_exists, gives_ttl = bucket, fields[1] or fields[2], writes
local needed_ttl = ceil(((limit - tokens + taken) * period + fraction) / rate) * 1000
  + min(refilled_at * 1000 - now, 0)
if writes then
  --! include shared/quota_fields.lua
  needed_ttl = max(needed_ttl, 2 * ceil(limit * period / rate) * 1000)
end
local extended_ttl = needed_ttl
--! include shared/life.lua
return state
--! end
