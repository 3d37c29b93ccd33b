-- Reads a page of a rate limiter's grants, and all else that is known about the limiter.
--
-- KEYS    name, value, permits
-- ARGV    1  the place of the first grant, from 0
--         2  how many grants, 500 at most
-- Returns an array
--         1  now in ms
--         2  the types of the three keys
--         3  rate, interval, type, keepAliveTime; '' for each that is missing
--         4  how many other fields the hash has
--         5  the value as it is stored, '' if it is missing
--         6  how many grants are stored
--         7  times to live of the three keys in ms; -1 for none, -2 if there is no key
--         8  the member and the score of each grant of the page
-- Writes  nothing

local name, value, permits = unpack(KEYS)
local types, ttls = {}, {}
for i, key in ipairs(KEYS) do
  types[i], ttls[i] = redis.call('type', key).ok, redis.call('pttl', key)
end
local settings, other_fields = { '', '', '', '' }, 0
if types[1] == 'hash' then
  for i, text in ipairs(redis.call('hmget', name, 'rate', 'interval', 'type', 'keepAliveTime')) do
    settings[i] = text or ''
    other_fields = other_fields - (text and 1 or 0)
  end
  other_fields = other_fields + redis.call('hlen', name)
end
local value_text = types[2] == 'string' and redis.call('getrange', value, 0, 40) or ''
local number, page = 0, {}
if types[3] == 'zset' then
  number = redis.call('zcard', permits)
  local last = ARGV[1] + math.min(ARGV[2], 500) - 1
  page = redis.call('zrange', permits, ARGV[1], last, 'withscores')
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
return { now, types, settings, other_fields, value_text, number, ttls, page }
