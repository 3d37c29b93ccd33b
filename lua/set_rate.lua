-- Sets the rate of a limiter, whether or not it exists, and resets it.
--
-- KEYS    name, value, value of the client, permits, permits of the client
-- ARGV    1  rate
--         2  interval in ms
--         3  type, '0' overall or '1' per client
--         4  keep alive in ms, '0' for none
-- Returns nil
-- Writes  the hash; deletes the value and the permits of the new type; with a keep alive the hash's
--         time to live
-- Tells   the clients that wait, by shared/publish_freed.lua

--! include shared/publish_freed.lua

local name, value, client_value, permits, client_permits = unpack(KEYS)
local rate, interval, limiter_type, keep_alive = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

redis.call('hset', name, 'rate', rate, 'interval', interval, 'type', limiter_type,
  'keepAliveTime', keep_alive)
if limiter_type == '1' then
  redis.call('unlink', client_value, client_permits)
else
  redis.call('unlink', value, permits)
end
if keep_alive ~= '0' then
  redis.call('pexpire', name, keep_alive)
end
publish_freed(rate)
