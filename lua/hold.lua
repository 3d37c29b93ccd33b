-- Takes all permits for some time: adds a grant of 2^32-1 permits that expires then, so that no
-- request is granted before.
--
-- KEYS    name, value, value of the client, permits, permits of the client, audit
-- ARGV    1  now in ms, '' for the server's clock
--         2  ms for which the permits are taken
--         3  the call id: 16 random bytes, made once, and sent unchanged with every attempt
--         4  audited rate, as ARGV[3] of acquire.lua
-- Returns 1; 0 if the rate is above 2^32-1, which one grant cannot hold: nothing was written
-- Errors  UNINITIALIZED, BADSTATE
-- Writes  one member, scored an interval before its end, which is no later than the limiter's; the
--         value, which may fall below zero; removes expired grants; the times to live. An attempt
--         that finds the grant of an earlier one adds none

--! include shared/limits.lua
--! include shared/window.lua

local given_now, time = ARGV[1], tonumber(ARGV[2])
local call_id, audited_rate = ARGV[3], tonumber(ARGV[4])

--! include shared/open_limiter.lua

local HELD = 4294967295
if limiter.rate > HELD then
  return 0
end
failure = window.reconcile(limiter, now, audited_rate ~= limiter.rate, 0)
if failure then
  return failure
end
window.end_audit(audit) -- the grant may be older than those that an audit has summed
local life = limiter.keep_alive > 0 and limiter.keep_alive or redis.call('pttl', name)
if life >= 0 then
  time = math.min(time, life)
end
local random = call_id .. struct.pack('<I8', math.max(time - limiter.interval, 0))
local score = window.digits(now + time - limiter.interval)
window.prepare(limiter)
-- The value is written later: it must stay if a server without memory refuses this command.
local member = window.pack(random, HELD)
local is_new = redis.call('zadd', limiter.permits_key, 'nx', score, member) == 1
window.write(limiter, is_new and HELD or 0)
return 1
