-- KEYS log; ARGV deadline, cost, limit, window in ms, id. Returns granted, remaining, ms until it
-- is worth asking again, ms until all is back.
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > tonumber(ARGV[1]) then
  return {}
end
local cost, limit, window = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
redis.call('zremrangebyscore', KEYS[1], '-inf', now - window)
local count = redis.call('zcard', KEYS[1])
if count + cost > limit then
  local place = count + cost - limit - 1
  local last_to_go = tonumber(redis.call('zrange', KEYS[1], place, place, 'withscores')[2])
  local newest = tonumber(redis.call('zrange', KEYS[1], -1, -1, 'withscores')[2])
  return { 0, limit - count, last_to_go + window - now, newest + window - now }
end
for unit = 1, cost do
  redis.call('zadd', KEYS[1], now, ARGV[5] .. unit)
end
redis.call('pexpire', KEYS[1], 2 * window)
return { 1, limit - count - cost, 0, window }
