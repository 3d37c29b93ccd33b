-- KEYS bucket; ARGV deadline, cost, capacity, quota, period in s. Returns granted, tokens left, ms
-- until it is worth asking again, ms until it is full.
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > tonumber(ARGV[1]) then
  return {}
end
local cost, capacity = tonumber(ARGV[2]), tonumber(ARGV[3])
local quota, period = tonumber(ARGV[4]), tonumber(ARGV[5])
local second = tonumber(time[1])
local fields = redis.call('hmget', KEYS[1], 'remain', 'timestamp', 'timestamp_fraction')
local remain, timestamp, fraction = capacity, second, 0
if fields[1] and fields[2] then
  remain, timestamp, fraction = tonumber(fields[1]), tonumber(fields[2]), tonumber(fields[3] or 0)
  if not (remain and timestamp and fraction) then
    return redis.error_reply('BADSTATE')
  end
  local came_in = math.max(math.floor(((second - timestamp) * quota - fraction) / period), 0)
  if remain + came_in >= capacity then
    remain, timestamp, fraction = capacity, second, 0
  else
    local took = fraction + came_in * period
    remain = remain + came_in
    timestamp, fraction = timestamp + math.floor(took / quota), took % quota
  end
elseif redis.call('exists', KEYS[1]) == 1 then
  return redis.error_reply('BADSTATE')
end
local function until_there_are(wanted)
  return (math.ceil(((wanted - remain) * period + fraction) / quota) + timestamp) * 1000 - now
end
local granted, left, again, full = 1, remain - cost, 0, nil
if cost > remain then
  granted, left, again, full = 0, remain, until_there_are(cost), until_there_are(capacity)
else
  full = until_there_are(capacity + cost)
end
redis.call(
  'hset', KEYS[1], 'capacity', ARGV[3], 'quota', ARGV[4], 'period', ARGV[5],
  'remain', string.format('%d', left), 'timestamp', string.format('%d', timestamp),
  'timestamp_fraction', string.format('%d', fraction)
)
redis.call('pexpire', KEYS[1], 2 * math.ceil(capacity * period / quota) * 1000)
return { granted, left, again, full }
