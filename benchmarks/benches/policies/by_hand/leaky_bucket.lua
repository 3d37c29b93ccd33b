-- KEYS requests in the bucket, time of the last outflow; ARGV deadline, cost, capacity, quantity,
-- unit in ms. Returns granted, remaining, ms until it is worth asking again or to wait, ms until
-- the bucket is empty.
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > tonumber(ARGV[1]) then
  return {}
end
local cost, capacity = tonumber(ARGV[2]), tonumber(ARGV[3])
local quantity, unit = tonumber(ARGV[4]), tonumber(ARGV[5])
local stored, started = redis.call('get', KEYS[1]), redis.call('get', KEYS[2])
local value, start, moved = tonumber(stored or 0), tonumber(started or now), true
if not value or not start or stored and string.format('%d', value) ~= stored
  or started and string.format('%d', start) ~= started then
  return redis.error_reply('BADSTATE')
end
if started then
  local units = math.max(math.floor((now - start) / unit), 0)
  value, start, moved = math.max(value - units * quantity, 0), start + units * unit, units > 0
else
  value = 0
end
local function until_out(count)
  return math.max(math.ceil(count / quantity) * unit + start - now, 0)
end
local filled = value + cost
if filled > capacity + quantity then
  local again = until_out(filled - capacity - quantity)
  return { 0, capacity + quantity - value, again, until_out(value) }
end
local batch = math.ceil(filled / quantity) - 1
local delay = started and batch > 0 and batch * unit + start - now or 0
local time_to_live = string.format('%d', (math.ceil(capacity / quantity) + 1) * unit)
redis.call('set', KEYS[1], string.format('%d', filled), 'px', time_to_live)
if moved then
  redis.call('set', KEYS[2], string.format('%d', start), 'px', time_to_live)
end
return { 1, capacity + quantity - filled, delay, until_out(filled) }
