-- Sets the time to live of all keys of a limiter.
--
-- KEYS    name, value, value of the client, permits, permits of the client
-- ARGV    1  'pexpire' for a time to live in ms, 'pexpireat' for a time in ms since the epoch
--         2  the time
--         3  '' always; 'nx' only keys without a time to live, 'xx' only keys with one, 'gt' only if the new one is
--            later, 'lt' only if it is sooner. All but '' need Redis 7
-- Returns 1 if a key was changed, else 0
-- Writes  the times to live. A time that has passed deletes the keys

local command, time, condition = ARGV[1], ARGV[2], ARGV[3]

local any = 0
for _, key in ipairs(KEYS) do
  local changed
  if condition == '' then
    changed = redis.call(command, key, time)
  else
    changed = redis.call(command, key, time, condition)
  end
  any = math.max(any, changed)
end
return any
