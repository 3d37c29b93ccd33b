-- Takes the time to live off every key of the limiter.
--
-- KEYS    name, value, value of the client, permits, permits of the client
-- ARGV    none
-- Returns 1 where any key had one, else 0
-- Writes  times to live

local any = 0
for _, key in ipairs(KEYS) do
  any = math.max(any, redis.call('persist', key))
end
return any
