-- Sets the rate, whatever it was, and starts the limiter afresh.
--
-- KEYS    name, value, value of the client, permits, permits of the client
-- ARGV    1  rate
--         2  interval in ms
--         3  type, '0' overall or '1' per client
--         4  keep alive in ms, '0' for none
-- Returns nothing
-- Writes  the hash; the permits left and the grants that the new type uses go; the time to live of the hash
--         where there is a keep alive, else it stays as it was

local name, value, client_value, permits, client_permits = unpack(KEYS)
local rate, interval, limiter_type, keep_alive = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

redis.call('hset', name, 'rate', rate, 'interval', interval, 'type', limiter_type, 'keepAliveTime', keep_alive)
if limiter_type == '1' then
  redis.call('unlink', client_value, client_permits)
else
  redis.call('unlink', value, permits)
end
if keep_alive ~= '0' then
  redis.call('pexpire', name, keep_alive)
end
