-- Lets every key of the limiter expire.
--
-- KEYS    name, value, value of the client, permits, permits of the client
-- ARGV    1  'pexpire' with a time to live in ms, or 'pexpireat' with a time in ms since the epoch
--         2  the time
--         3  '' always, 'nx' where a key has no time to live, 'xx' where it has one, 'gt' where the new one is
--            later, 'lt' where it is sooner
-- Returns 1 where any key got it, else 0
-- Writes  times to live

local command, time, condition = ARGV[1], ARGV[2], ARGV[3]

local any = 0
for _, key in ipairs(KEYS) do
  local done
  if condition == '' then
    done = redis.call(command, key, time)
  else
    done = redis.call(command, key, time, condition)
  end
  any = math.max(any, done)
end
return any
