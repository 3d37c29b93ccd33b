-- KEYS start of the first period, what the counters' names begin with; ARGV deadline, cost, limit,
-- window and period in ms. Returns granted, remaining, ms until it is worth asking again, ms until
-- all is back.
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > tonumber(ARGV[1]) then
  return {}
end
local cost, limit = tonumber(ARGV[2]), tonumber(ARGV[3])
local window, period = tonumber(ARGV[4]), tonumber(ARGV[5])
local stored = redis.call('get', KEYS[1])
local start = stored and tonumber(stored) or now
if stored and string.format('%d', start) ~= stored then
  return redis.error_reply('BADSTATE')
end
local current = start + math.max(math.ceil((now - start) / period), 1) * period - 1
local names = {}
for last = current - window + period, current, period do
  names[#names + 1] = KEYS[2] .. string.format('%d', last)
end
local counters = redis.call('mget', unpack(names))
local used, newest, counts = 0, nil, {}
for i = 1, #names do
  if counters[i] then
    counts[i] = tonumber(counters[i])
    if not counts[i] or string.format('%d', counts[i]) ~= counters[i] then
      return redis.error_reply('BADSTATE')
    end
    used = used + counts[i]
    newest = i
  end
end
local function until_out(i)
  return current + (i - 1) * period + 2 - now
end
if used + cost > limit then
  local left, i = used, 0
  repeat
    i = i + 1
    left = left - (counts[i] or 0)
  until left + cost <= limit
  return { 0, limit - used, until_out(i), until_out(newest) }
end
if counters[#names] and stored then
  redis.call('incrby', names[#names], ARGV[2])
else
  redis.call('set', names[#names], ARGV[2], 'px', 2 * window + 16)
  redis.call('set', KEYS[1], string.format('%d', start), 'px', 2 * window)
end
return { 1, limit - used - cost, 0, until_out(#names) }
