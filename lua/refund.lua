-- Returns permits of one grant to the limiter, exactly and once. Or settles a grant that was ahead of the clock: the permits
-- that were not used come back, and the others when the interval since their last use has passed.
--
-- KEYS    name, value, value of the client, permits, permits of the client, audit
-- ARGV    1  now in ms, '' for the server's clock
--         2  score of the grant
--         3  the call id of the grant: its random bytes
--         4  permits to return
--         5  audited rate, as ARGV[3] of acquire.lua
--         6  to settle, else left out: ms by which the last use came before the score. Then ARGV[4] are the permits that
--            were used: the grant keeps no more, and its score and the ms in its member are less by ARGV[6]
-- Returns the permits returned: fewer than asked for if releases took part of the grant, 0 if it has expired
-- Errors  UNINITIALIZED, BADSTATE
-- Writes  shrinks, moves or removes the member and raises the value by as much; removes expired grants; the times to live.
--         Nothing if the grant is not found
-- Tells   those that wait, by shared/publish_freed.lua, unless the limiter is per client

--! include shared/limits.lua
--! include shared/window.lua
--! include shared/publish_freed.lua

local window = load_window()
local name, value, client_value, permits, client_permits, audit = unpack(KEYS)
local now, score, call_id = window.time_of(ARGV[1]), ARGV[2], ARGV[3]
local number, audited_rate, early = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])

local limiter, failure = window.open(name, value, client_value, permits, client_permits)
if failure then
  return failure
end
if tonumber(score) <= now - limiter.interval then
  return 0
end

local member = not early and window.find_at(limiter.permits_key, score, string.char(#call_id) .. call_id)
  or window.find_at(limiter.permits_key, score, string.char(24) .. call_id)
if not member then
  return 0
end
local held = window.permits_of(member)
local left = math.max(held - number, 0)
if early then
  -- If the window of the last use has passed, so have those of the others.
  left = score - early > now - limiter.interval and math.min(number, held) or 0
  if left == held and early == 0 then
    return 0
  end
end
failure = window.reconcile(limiter, now, audited_rate ~= limiter.rate, 0)
if failure then
  return failure
end
local returned = held - left
-- The grant shrinks first: the excess of a peer's release comes out of what remains.
if left == 0 or early and early > 0 then
  if left > 0 then
    local grant = member
    --! include shared/ahead.lua
    local id = call_id .. struct.pack('<I8', math.max(ahead - early, 0))
    window.shrink(limiter.permits_key, window.digits(score - early), member, left, id)
  else
    redis.call('zrem', limiter.permits_key, member)
  end
  window.note_change(audit, member, score, held, true)
elseif window.shrink(limiter.permits_key, score, member, left) then
  window.note_change(audit, member, score, returned, false)
else
  window.end_audit(audit) -- with another id the grant may have another place
end
window.take_from_oldest(limiter, limiter.expired, limiter.excess)
window.credit(limiter, returned)
window.write(limiter, 0)
window.renew(limiter)
if returned > 0 and limiter.value_key == value then
  publish_freed(limiter.available)
end
return returned
