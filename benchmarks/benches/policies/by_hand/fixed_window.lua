-- KEYS counter; ARGV deadline, cost, limit, window in ms. Returns granted, remaining, ms until the
-- window ends.
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > tonumber(ARGV[1]) then
  return {}
end
local cost, limit, window = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local text = redis.call('get', KEYS[1])
if not text then
  redis.call('set', KEYS[1], ARGV[2], 'px', ARGV[4])
  return { 1, limit - cost, window }
end
local count = tonumber(text)
if not count or string.format('%d', count) ~= text then
  return redis.error_reply('BADSTATE')
end
local left = redis.call('pttl', KEYS[1])
if left == -1 then
  redis.call('pexpire', KEYS[1], ARGV[4])
  left = window
end
if count + cost > limit then
  return { 0, limit - count, left }
end
redis.call('incrby', KEYS[1], ARGV[2])
return { 1, limit - count - cost, left }
