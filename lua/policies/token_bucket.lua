-- Tokens that arrive at a steady rate; a request takes its cost in tokens.
--
-- KEYS    bucket
-- numbers 1  capacity
--         2  rate, in tokens per second
-- Returns 4  tokens
--         5  time of the last refill in ms
--         6  its fraction, in units of 1 / rate ms
-- Writes  if tokens were taken, the bucket's fields: tokens; last_refill_timestamp in ms and, in
--         last_refill_fraction, its fraction in units of 1 / rate ms, both advanced by the time
--         that the refilled tokens took. If the time to live is less than twice the time in which
--         an empty bucket fills, it is set to three times that time, or until the bucket is full
--         if that is longer (shared/life.lua)

--! include shared/limits.lua
--! include shared/policy.lua
--! include shared/finite.lua
--! include shared/one_target.lua

--! part read
local bucket = KEYS[1]
local limit, rate = unpack_numbers('<dd', numbers)
local period, present, least = 1000, now, -LARGEST

local fields = call('hmget', bucket, 'tokens', 'last_refill_timestamp', 'last_refill_fraction')
if not (fields[1] or fields[2]) and call('exists', bucket) == 1 then
  return redis.error_reply('BADSTATE the hash is not a token bucket')
end
--! include shared/refill.lua
local room = tokens
--! end

--! include shared/grant_runs.lua

--! part state
local state = pack('<dddddd', server_now, now, 0, tokens, refilled_at, fraction)
--! end

--! part write
local life_key, key_exists, gives_ttl = bucket, fields[1] or fields[2], taken > 0
local needed_ttl = ceil(((limit - tokens + taken) * period + fraction) / rate)
  + min(refilled_at - now, 0)
local extended_ttl = needed_ttl
if taken > 0 then
  --! include shared/token_fields.lua
  needed_ttl = max(needed_ttl, ceil(2 * limit * period / rate))
  extended_ttl = max(needed_ttl, ceil(3 * limit * period / rate))
end
--! include shared/life.lua
return state
--! end
