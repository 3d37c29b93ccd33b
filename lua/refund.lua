-- Returns permits of one grant to the limiter, exactly and once.
--
-- KEYS    name, value, value of the client, permits, permits of the client, audit
-- ARGV    1  now in ms, '' for the server's clock
--         2  score of the grant
--         3  the call id of the grant: its random bytes
--         4  permits to return
--         5  audited rate, as ARGV[3] of acquire.lua
--         6  of a lease, else left out: the earliest score that it has if it is settled. If it has another one than ARGV[2],
--            it is looked for from there
-- Returns the permits returned: fewer than asked for if releases took part of the grant, 0 if it has expired. Below 0: nothing was
--         written, and minus this number is the score from which to continue the search, as ARGV[6]
-- Errors  UNINITIALIZED, BADSTATE
-- Writes  shrinks or removes the member, with the fence of a lease, and raises the value by as much; removes expired grants; the times to live. Nothing
--         if the grant is not found
-- Tells   those that wait, by shared/publish_freed.lua, unless the limiter is per client

--! include shared/limits.lua
--! include shared/window.lua

local given_now, score, call_id, number = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local audited_rate, from = tonumber(ARGV[5]), tonumber(ARGV[6])

--! include shared/open_limiter.lua

local key, alone, of_lease = limiter.permits_key, string.char(#call_id) .. call_id, '\24' .. call_id
local member, more = window.find_at(key, score, alone) or window.find_at(key, score, of_lease), nil
if from and not member then
  member, score, more = window.find_call(key, of_lease, from, score + 2)
  if more then
    return -more
  end
end
if not member or tonumber(score) <= now - limiter.interval then
  return 0
end

--! include shared/return_grant.lua
return returned
