-- Removes the value and the permits of a client, unless a grant of it is live.
--
-- KEYS    value, permits
-- ARGV    1  the length of the window in ms, '' to remove them in any case
-- Returns how many keys were removed
-- Writes  both keys, by UNLINK

local time = redis.call('time')
if ARGV[1] ~= '' then
  local horizon = string.format('(%.0f', time[1] * 1000 + math.floor(time[2] / 1000) - ARGV[1])
  if redis.call('zcount', KEYS[2], horizon, '+inf') > 0 then
    return 0
  end
end
return redis.call('unlink', KEYS[1], KEYS[2])
