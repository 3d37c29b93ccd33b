-- Changes the rate of a limiter, and keeps the permits in use on request.
--
-- KEYS    name, value, value of the client, permits, permits of the client
-- ARGV    1  now in ms, '' for the server's clock
--         2  rate
--         3  interval in ms
--         4  type, '0' overall or '1' per client
--         5  keep alive in ms, '0' for none
--         6  '1' to keep the permits in use, '0' to reset the limiter
--         7  '1' to do nothing if there is no limiter, '0' to create one
-- Returns 1 if the rate was set, else 0
-- Writes  the hash and the times to live. If the type changes, deletes all other keys. If the limiter is reset, deletes
--         the value and the permits that the type uses. If permits in use are kept, removes the grants that have expired
--         by the new interval and sets the value to the rate less the live ones; with more than 100 grants of which some
--         are live, only adds the change of the rate to the value
-- Tells   those that wait, by shared/publish_freed.lua, if the rate was set

--! include shared/limits.lua
--! include shared/window.lua
--! include shared/publish_freed.lua

local window = load_window()
local name, value, client_value, permits, client_permits = unpack(KEYS)
local now, rate, interval, limiter_type, keep_alive = window.time_of(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local keep_state, only_existing = ARGV[6] == '1', ARGV[7] == '1'

local before = redis.call('hmget', name, 'rate', 'type')
local rate_before, type_before = window.integer(before[1] or ''), before[2]
if only_existing and redis.call('exists', name) == 0 then
  return 0
end
local limiter = {
  name = name,
  keep_alive = tonumber(keep_alive),
  value_key = limiter_type == '1' and client_value or value,
  permits_key = limiter_type == '1' and client_permits or permits,
}
local keeps_state = keep_state and (not type_before or type_before == limiter_type)
local horizon, available = window.digits(now - interval), nil
local all_expired = false
if keeps_state then
  -- Before anything is written: these commands fail on a key of another type.
  local number = redis.call('zcard', limiter.permits_key)
  local stored = redis.call('get', limiter.value_key)
  if number <= MOST_SUMMED then
    available = rate - window.sum(redis.call('zrangebyscore', limiter.permits_key, '(' .. horizon, '+inf'))
  elseif redis.call('zcount', limiter.permits_key, '(' .. horizon, '+inf') == 0 then
    available, all_expired = rate + 0, true
  else
    -- A missing value counts as 0.
    available = math.min((window.integer(stored or '') or 0) + (rate - (rate_before or rate)), rate)
    horizon = nil
  end
end

redis.call('hset', name, 'rate', rate, 'interval', interval, 'type', limiter_type, 'keepAliveTime', keep_alive)
if type_before and type_before ~= limiter_type then
  redis.call('unlink', value, client_value, permits, client_permits)
elseif not keep_state then
  redis.call('unlink', limiter.value_key, limiter.permits_key)
else
  redis.call('set', limiter.value_key, window.digits(available))
  if all_expired then
    redis.call('unlink', limiter.permits_key)
  elseif horizon then
    redis.call('zremrangebyscore', limiter.permits_key, '-inf', horizon)
  end
end
window.renew(limiter)
publish_freed(available or rate)
return 1
