-- Reads a page of a rate limiter's grants, and all else that is known about it.
--
-- KEYS    name, value, permits
-- ARGV    1  the place of the first grant, from 0
--         2  how many, 500 at most
-- Returns an array
--         1  now in ms
--         2  the types of the three keys
--         3  rate, interval, type, keepAliveTime; '' each if it is missing
--         4  how many other fields the hash has
--         5  the value as it is stored, '' if it is missing
--         6  how many grants are stored
--         7  times to live of the three keys in ms; -1 none, -2 no key
--         8  the member and the score of each grant of the page
-- Writes  nothing

local name, value, permits = unpack(KEYS)
local types, lives = {}, {}
for i, key in ipairs(KEYS) do
  types[i], lives[i] = redis.call('type', key).ok, redis.call('pttl', key)
end
local settings, others = { '', '', '', '' }, 0
if types[1] == 'hash' then
  for i, text in ipairs(redis.call('hmget', name, 'rate', 'interval', 'type', 'keepAliveTime')) do
    settings[i] = text or ''
    others = others - (text and 1 or 0)
  end
  others = others + redis.call('hlen', name)
end
local text = types[2] == 'string' and redis.call('getrange', value, 0, 40) or ''
local number, page = 0, {}
if types[3] == 'zset' then
  number = redis.call('zcard', permits)
  page = redis.call('zrange', permits, ARGV[1], ARGV[1] + math.min(ARGV[2], 500) - 1, 'withscores')
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
return { now, types, settings, others, text, number, lives, page }
