-- Removes the time to live of all keys of a limiter.
--
-- KEYS    name, value, value of the client, permits, permits of the client
-- ARGV    none
-- Returns 1 if a key had a time to live, else 0
-- Writes  the times to live

local had_any = 0
for _, key in ipairs(KEYS) do
  had_any = math.max(had_any, redis.call('persist', key))
end
return had_any
