-- Sets the time to live of all keys of a limiter.
--
-- KEYS    name, value, value of the client, permits, permits of the client
-- ARGV    1  'pexpire' for a time to live in ms, 'pexpireat' for a time in ms since the epoch
--         2  the time
--         3  which keys: '' all, 'nx' those without a time to live, 'xx' those with one, 'gt' if
--            the new one is later, 'lt' if it is sooner, as PEXPIRE of Redis 7 has them
-- Returns 1 if a key was changed, else 0
-- Writes  the times to live. A time that has passed deletes the keys; the server frees their memory
--         in the background
-- Tells   the clients that wait, by shared/publish_freed.lua, if keys were deleted: any number of
--         permits may be asked for

--! include shared/publish_freed.lua

local command, time, condition = ARGV[1], ARGV[2], ARGV[3]

local clock = redis.call('time')
local from_now = time
  - (command == 'pexpireat' and clock[1] * 1000 + math.floor(clock[2] / 1000) or 0)

-- By condition, whether a key with this time to live in ms, -1 for none, meets it.
local meets = {
  [''] = function() return true end,
  nx = function(ttl) return ttl == -1 end,
  xx = function(ttl) return ttl >= 0 end,
  gt = function(ttl) return ttl >= 0 and from_now > ttl end,
  lt = function(ttl) return ttl == -1 or from_now < ttl end,
}

local any_changed = 0
for _, key in ipairs(KEYS) do
  if meets[condition](redis.call('pttl', key)) then
    -- PEXPIRE with a time that has passed would free all members of a set before the next command.
    local changed = from_now > 0 and redis.call(command, key, time) or redis.call('unlink', key)
    any_changed = math.max(any_changed, changed)
  end
end
if any_changed == 1 and from_now <= 0 then
  publish_freed(9007199254740992) -- 2^53
end
return any_changed
