-- Changes the rate, and on request keeps what is in use.
--
-- KEYS    name, value, value of the client, permits, permits of the client
-- ARGV    1  now in ms, or '' for the server's clock
--         2  rate
--         3  interval in ms
--         4  type, '0' overall or '1' per client
--         5  keep alive in ms, '0' for none
--         6  '1' to keep the state, '0' to start afresh
--         7  '1' to do nothing where there is no limiter, '0' to make one
-- Returns 1 where the rate was set, else 0
-- Writes  the hash. Another type than before: all other keys go. Kept state: the permits left change by as much as the rate,
--         and where the grants are few or have all expired by the new interval, expired ones go, and the permits left are
--         what the new rate leaves beside the live ones. Else: the permits left and the grants that the type uses go. The
--         times to live

local books = bookkeeping()
local name, value, client_value, permits, client_permits = unpack(KEYS)
local now, rate, interval, limiter_type, keep_alive = books.time_of(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local keep_state, only_existing = ARGV[6] == '1', ARGV[7] == '1'

local before = redis.call('hmget', name, 'rate', 'type')
local rate_before, type_before = books.integer(before[1] or ''), before[2]
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
local horizon, left = books.digits(now - interval), nil
local is_deleted = false
if keeps_state then
  -- Before anything is written: these fail where the key is of another kind.
  local number = redis.call('zcard', limiter.permits_key)
  local value_before = redis.call('get', limiter.value_key)
  if number <= SUMMED then
    left = rate - books.sum(redis.call('zrangebyscore', limiter.permits_key, '(' .. horizon, '+inf'))
  elseif redis.call('zcount', limiter.permits_key, '(' .. horizon, '+inf') == 0 then
    left, is_deleted = rate + 0, true
  else
    -- Where the permits left are lost, as if there were none.
    left = math.min((books.integer(value_before or '') or 0) + (rate - (rate_before or rate)), rate)
    horizon = nil
  end
end

redis.call('hset', name, 'rate', rate, 'interval', interval, 'type', limiter_type, 'keepAliveTime', keep_alive)
if type_before and type_before ~= limiter_type then
  redis.call('unlink', value, client_value, permits, client_permits)
elseif not keep_state then
  redis.call('unlink', limiter.value_key, limiter.permits_key)
else
  redis.call('set', limiter.value_key, books.digits(left))
  if is_deleted then
    redis.call('unlink', limiter.permits_key)
  elseif horizon then
    redis.call('zremrangebyscore', limiter.permits_key, '-inf', horizon)
  end
end
books.renew(limiter)
return 1
