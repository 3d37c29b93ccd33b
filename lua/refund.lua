-- Returns permits of one grant to the limiter, exactly and once.
--
-- KEYS    name, value, value of the client, permits, permits of the client, audit
-- ARGV    1  now in ms, '' for the server's clock
--         2  score of the grant
--         3  the call id of the grant: its random bytes
--         4  permits to return
--         5  audited rate, as ARGV[3] of acquire.lua
--         6  only for a lease: the earliest score that settling can give it, from which it is
--            looked for if it does not have the score in ARGV[2]
-- Returns the permits returned: fewer than asked for if releases took part of the grant, 0 if it
--         has expired. Below 0: nothing was written; call again with minus this number as ARGV[6]
-- Errors  UNINITIALIZED, BADSTATE
-- Writes  shrinks or removes the member, with the fence of a lease, and raises the value by as
--         much; removes expired grants; the times to live. Nothing if the grant is not found
-- Tells   the clients that wait, by shared/publish_freed.lua, unless the limiter is per client

--! include shared/limits.lua
--! include shared/window.lua

local given_now, score, call_id, number = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local audited_rate, from = tonumber(ARGV[5]), tonumber(ARGV[6])

--! include shared/open_limiter.lua

-- How the member begins: with its length byte, which is 24 for a lease, and the call id.
local key, plain, lease = limiter.permits_key, string.char(#call_id) .. call_id, '\24' .. call_id
local member, more = window.find_at(key, score, plain) or window.find_at(key, score, lease), nil
if from and not member then
  member, score, more = window.find_call(key, lease, from, score + 2)
  if more then
    return -more
  end
end
if not member or tonumber(score) <= now - limiter.interval then
  return 0
end

--! include shared/return_grant.lua
return returned
