-- Returns permits of one grant to the limiter, exactly and once.
--
-- KEYS    name, value, value of the client, permits, permits of the client, audit
-- ARGV    1  now in ms, '' for the server's clock
--         2  score of the grant
--         3  the call id of the grant: its random bytes
--         4  permits to return
--         5  audited rate, as ARGV[3] of acquire.lua
-- Returns the permits returned: fewer than asked for if releases took part of the grant, 0 if it has expired
-- Errors  UNINITIALIZED, BADSTATE
-- Writes  shrinks or removes the member and raises the value by as much; removes expired grants; the times to live.
--         Nothing if the grant is not found

--! include shared/limits.lua
--! include shared/window.lua

local window = load_window()
local name, value, client_value, permits, client_permits, audit = unpack(KEYS)
local now, score, call_id = window.time_of(ARGV[1]), ARGV[2], ARGV[3]
local refunded, audited_rate = tonumber(ARGV[4]), tonumber(ARGV[5])

local limiter, failure = window.open(name, value, client_value, permits, client_permits)
if failure then
  return failure
end
if tonumber(score) <= now - limiter.interval then
  return 0
end

local member = window.find_at(limiter.permits_key, score, string.char(#call_id) .. call_id)
if not member then
  return 0
end
failure = window.reconcile(limiter, now, audited_rate ~= limiter.rate, 0)
if failure then
  return failure
end
local held = window.permits_of(member)
local returned = math.min(refunded, held)
-- The grant shrinks first: the excess of a peer's release comes out of what remains.
if held == returned then
  redis.call('zrem', limiter.permits_key, member)
  window.note_change(audit, member, score, returned, true)
elseif window.shrink(limiter.permits_key, score, member, held - returned) then
  window.note_change(audit, member, score, returned, false)
else
  window.end_audit(audit) -- with another id the grant may have another place
end
window.take_from_oldest(limiter, limiter.expired, limiter.excess)
window.credit(limiter, returned)
window.write(limiter, 0)
window.renew(limiter)
return returned
