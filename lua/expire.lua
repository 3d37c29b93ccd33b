-- Sets the time to live of all keys of a limiter.
--
-- KEYS    name, value, value of the client, permits, permits of the client
-- ARGV    1  'pexpire' for a time to live in ms, 'pexpireat' for a time in ms since the epoch
--         2  the time
--         3  '' always; 'nx' only keys without a time to live, 'xx' only keys with one, 'gt' only if the new one is
--            later, 'lt' only if it is sooner, as PEXPIRE of Redis 7 has them
-- Returns 1 if a key was changed, else 0
-- Writes  the times to live. A time that has passed deletes the keys; the server frees their memory in the background
-- Tells   those that wait, by shared/publish_freed.lua, if keys were deleted: any number of permits may be asked for

--! include shared/publish_freed.lua

local command, time, condition = ARGV[1], ARGV[2], ARGV[3]

local clock = redis.call('time')
local from_now = time - (command == 'pexpireat' and clock[1] * 1000 + math.floor(clock[2] / 1000) or 0)

-- Whether a key with this time to live, -1 for none, meets the condition.
local meets = {
  [''] = function() return true end,
  nx = function(left) return left == -1 end,
  xx = function(left) return left >= 0 end,
  gt = function(left) return left >= 0 and from_now > left end,
  lt = function(left) return left == -1 or from_now < left end,
}

local any = 0
for _, key in ipairs(KEYS) do
  if meets[condition](redis.call('pttl', key)) then
    -- PEXPIRE with a time that has passed would free all members of a set before the next command.
    local changed = from_now > 0 and redis.call(command, key, time) or redis.call('unlink', key)
    any = math.max(any, changed)
  end
end
if any == 1 and from_now <= 0 then
  publish_freed(9007199254740992)
end
return any
