-- KEYS theoretical arrival time in us; ARGV deadline, cost, burst, emission interval in us. Returns
-- granted, remaining, ms until it is worth asking again, ms until all is back.
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
if now > ARGV[1] * 1000 then
  return {}
end
local cost, burst, interval = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local text, arrival = redis.call('get', KEYS[1]), now
if text then
  arrival = tonumber(text)
  if not arrival then
    return redis.error_reply('BADSTATE')
  end
  arrival = math.max(arrival, now)
end
local after = arrival + cost * interval
local over = after - now - burst * interval
local left = math.floor((now + burst * interval - arrival) / interval)
if over > 0 then
  return { 0, left, math.ceil(over / 1000), math.ceil((arrival - now) / 1000) }
end
local reset = math.ceil((after - now) / 1000)
redis.call('set', KEYS[1], string.format('%d', after), 'px', reset)
return { 1, left - cost, 0, reset }
