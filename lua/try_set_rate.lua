-- Sets the rate of a limiter that has none.
--
-- KEYS    name, value, value of the client, permits, permits of the client
-- ARGV    1  rate
--         2  interval in ms
--         3  type, '0' overall or '1' per client
--         4  keep alive in ms, '0' for none
-- Returns 1 if this call set the type, else 0
-- Writes  the fields that the hash lacks; with a keep alive its time to live, if the type was set.
--         If there was no hash, deletes what an earlier limiter of this name left in the other keys
-- Tells   the clients that wait, by shared/publish_freed.lua, if the type was set

--! include shared/publish_freed.lua

local name, value, client_value, permits, client_permits = unpack(KEYS)
local rate, interval, limiter_type, keep_alive = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local is_new = redis.call('exists', name) == 0
redis.call('hsetnx', name, 'rate', rate)
redis.call('hsetnx', name, 'interval', interval)
redis.call('hsetnx', name, 'keepAliveTime', keep_alive)
local was_set = redis.call('hsetnx', name, 'type', limiter_type)
if is_new then
  redis.call('unlink', value, client_value, permits, client_permits)
end
if was_set == 1 and keep_alive ~= '0' then
  redis.call('pexpire', name, keep_alive)
end
if was_set == 1 then
  publish_freed(rate)
end
return was_set
