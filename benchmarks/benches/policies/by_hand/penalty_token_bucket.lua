-- KEYS tokens left, time of the last inflow, lock; ARGV deadline, cost, capacity, quantity, unit in
-- ms, time to live in ms, penalty in ms. Returns granted, tokens left, ms until it is worth asking
-- again, ms until it is full.
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > tonumber(ARGV[1]) then
  return {}
end
local locked = redis.call('pttl', KEYS[3])
if locked > 0 then
  return { 0, -1, locked, locked }
end
local cost, capacity = tonumber(ARGV[2]), tonumber(ARGV[3])
local quantity, unit = tonumber(ARGV[4]), tonumber(ARGV[5])
local stored, started = redis.call('get', KEYS[1]), redis.call('get', KEYS[2])
local tokens, start, moved = tonumber(stored or capacity), tonumber(started or now), true
if not tokens or not start or stored and string.format('%d', tokens) ~= stored
  or started and string.format('%d', start) ~= started then
  return redis.error_reply('BADSTATE')
end
if started then
  local units = math.max(math.floor((now - start) / unit), 0)
  tokens = math.min(tokens + units * quantity, capacity)
  start, moved = start + units * unit, units > 0
else
  tokens = capacity
end
local function until_there_are(wanted)
  return math.max(math.ceil((wanted - tokens) / quantity) * unit + start - now, 0)
end
if cost > tokens then
  redis.call('set', KEYS[3], '1', 'px', ARGV[7])
  return { 0, tokens, tonumber(ARGV[7]), tonumber(ARGV[7]) }
end
local full = until_there_are(capacity + cost)
redis.call('set', KEYS[1], string.format('%d', tokens - cost), 'px', ARGV[6] + 10)
if moved then
  redis.call('set', KEYS[2], string.format('%d', start), 'px', ARGV[6])
end
return { 1, tokens - cost, 0, full }
