-- Removes the value and the permits of a client, or one of them, unless they or the limiter have
-- changed since they were read.
--
-- KEYS    name, value, permits; then, if there can be one, the name of another limiter whose value
--         and permits these may be
-- ARGV    1  the type of the limiter as it was read, '' if there was no limiter
--         2  the value as it was read, '' if it was missing
--         3  how many grants there were
--         4  the oldest of them, '' if there was none
--         5  the newest of them, '' if there was none
--         6  'both', 'value' or 'permits': which to remove
-- Returns how many keys were removed
-- Writes  value and permits, by UNLINK

local name, value, permits, namesake = unpack(KEYS)
if namesake and redis.call('exists', namesake) == 1 then
  return 0
end
if ARGV[1] == '' then
  -- If a client has made the limiter since, it may have taken permits.
  if redis.call('type', name).ok == 'hash' and redis.call('hmget', name, 'rate')[1] then
    return 0
  end
elseif redis.call('type', name).ok ~= 'hash'
  or redis.call('hmget', name, 'type')[1] ~= ARGV[1] then
  return 0
end
local stored, number = redis.pcall('get', value), redis.pcall('zcard', permits)
if type(stored) == 'table' or type(number) == 'table' then
  return 0 -- an error: the key is of another type by now
end
if (stored or '') ~= ARGV[2] or number ~= tonumber(ARGV[3])
  or (redis.call('zrange', permits, 0, 0)[1] or '') ~= ARGV[4]
  or (redis.call('zrange', permits, -1, -1)[1] or '') ~= ARGV[5] then
  return 0
end
if ARGV[6] == 'both' then
  return redis.call('unlink', value, permits)
end
return redis.call('unlink', ARGV[6] == 'value' and value or permits)
