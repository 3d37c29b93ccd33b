-- Gives those keys of a limiter that do not expire the time to live that they should have: the
-- hash's, or else the keep alive.
--
-- KEYS    name, value, permits
-- Returns how many keys got one
-- Writes  the times to live of keys without one

local LARGEST = 9007199254740992 -- 2^53

local name = KEYS[1]
if redis.call('type', name).ok ~= 'hash' then
  return 0
end
local life = redis.call('pttl', name)
local fields = redis.call('hmget', name, 'interval', 'keepAliveTime')
local interval, keep_alive = tonumber(fields[1] or ''), tonumber(fields[2] or '') or 0
if keep_alive > 0 and not (interval and keep_alive >= interval) then
  return 0 -- permits in use would expire before their interval has passed
end
if life <= 0 then
  life = keep_alive
end
if not (life > 0 and life <= LARGEST) then
  return 0
end
local given = 0
for _, key in ipairs(KEYS) do
  if redis.call('pttl', key) == -1 then
    given = given + redis.call('pexpire', key, string.format('%.0f', life))
  end
end
return given
