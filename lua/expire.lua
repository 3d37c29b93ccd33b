-- Sets the time to live of all keys of a limiter.
--
-- KEYS    name, value, value of the client, permits, permits of the client
-- ARGV    1  'pexpire' for a time to live in ms, 'pexpireat' for a time in ms since the epoch
--         2  the time
--         3  '' always; 'nx' only keys without a time to live, 'xx' only keys with one, 'gt' only if the new one is
--            later, 'lt' only if it is sooner. All but '' need Redis 7
-- Returns 1 if a key was changed, else 0
-- Writes  the times to live. A time that has passed deletes the keys; the server frees their memory in the background

local command, time, condition = ARGV[1], ARGV[2], ARGV[3]

local clock = redis.call('time')
local since = command == 'pexpireat' and clock[1] * 1000 + math.floor(clock[2] / 1000) or 0
local has_passed = time - since <= 0

-- PEXPIRE with a time that has passed would free all members of a set before the next command.
local function delete(key)
  local left = redis.call('pttl', key)
  local is_limited = left ~= -1
  if condition == 'gt' or (condition == 'nx' and is_limited) or (condition == 'xx' and not is_limited) then
    return 0
  end
  return redis.call('unlink', key)
end

local any = 0
for _, key in ipairs(KEYS) do
  local changed
  if has_passed then
    changed = delete(key)
  elseif condition == '' then
    changed = redis.call(command, key, time)
  else
    changed = redis.call(command, key, time, condition)
  end
  any = math.max(any, changed)
end
return any
