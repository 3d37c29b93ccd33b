-- Removes the value and the permits of a client, unless a grant of it is live or the limiter has changed since it was read.
--
-- KEYS    name, value, permits; the name of another limiter whose value and permits these may be, if there can be one
-- ARGV    1  the type of the limiter as it was read, '' if there was no limiter
--         2  the length of the window in ms, '' to remove them with live grants too
-- Returns how many keys were removed
-- Writes  value and permits, by UNLINK

local name, value, permits, namesake = unpack(KEYS)
if namesake and redis.call('exists', namesake) == 1 then
  return 0
end
if ARGV[1] == '' then
  -- A client that has made a limiter since may have taken permits.
  if redis.call('exists', name) == 1 then
    return 0
  end
elseif redis.call('type', name).ok ~= 'hash' or redis.call('hmget', name, 'type')[1] ~= ARGV[1] then
  return 0
end
if ARGV[2] ~= '' then
  local time = redis.call('time')
  local horizon = string.format('(%.0f', time[1] * 1000 + math.floor(time[2] / 1000) - ARGV[2])
  if redis.call('zcount', permits, horizon, '+inf') > 0 then
    return 0
  end
end
return redis.call('unlink', value, permits)
