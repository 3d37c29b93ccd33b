-- KEYS bucket; ARGV deadline, cost, capacity, tokens a second. Returns granted, tokens left, ms
-- until it is worth asking again, ms until it is full.
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > tonumber(ARGV[1]) then
  return {}
end
local cost, capacity, rate = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local fields = redis.call(
  'hmget', KEYS[1], 'tokens', 'last_refill_timestamp', 'last_refill_fraction'
)
local tokens, refilled_at, fraction = capacity, now, 0
if fields[1] and fields[2] then
  tokens, refilled_at, fraction = tonumber(fields[1]), tonumber(fields[2]), tonumber(fields[3] or 0)
  if not (tokens and refilled_at and fraction) then
    return redis.error_reply('BADSTATE')
  end
  local came_in = math.max(math.floor(((now - refilled_at) * rate - fraction) / 1000), 0)
  if tokens + came_in >= capacity then
    tokens, refilled_at, fraction = capacity, now, 0
  else
    local took = fraction + came_in * 1000
    tokens = tokens + came_in
    refilled_at, fraction = refilled_at + math.floor(took / rate), took % rate
  end
elseif redis.call('exists', KEYS[1]) == 1 then
  return redis.error_reply('BADSTATE')
end
local function until_there_are(wanted)
  return math.ceil(((wanted - tokens) * 1000 + fraction) / rate) + refilled_at - now
end
if cost > tokens then
  return { 0, tokens, until_there_are(cost), until_there_are(capacity) }
end
local full = until_there_are(capacity + cost)
redis.call(
  'hset', KEYS[1], 'tokens', string.format('%d', tokens - cost),
  'last_refill_timestamp', string.format('%d', refilled_at),
  'last_refill_fraction', string.format('%d', fraction)
)
redis.call('pexpire', KEYS[1], math.ceil(2 * capacity * 1000 / rate))
return { 1, tokens - cost, 0, full }
