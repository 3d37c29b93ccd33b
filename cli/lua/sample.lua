-- Says what a key is, and of a rate limiter how much is in use.
--
-- KEYS    name, value, permits; the start of a bucket with that name
-- ARGV    1  ms since the epoch from which on, up to now, grants are counted as new; if it is negative, ms before now
-- Returns an array that begins with the kind:
--         'rate', rate, interval, type, keep alive, value, time to live of the hash, now, stored grants, permits of the expired
--                 ones (-1: too many to read), permits of the live ones (the same), score of the oldest live one that holds
--                 permits, new grants, permits of the newest of them, their number
--         'token_bucket', 'quota_bucket', 'sliding_window_log', 'fixed_window', 'bucket', each with what it holds and its time
--                 to live
--         'other'
--         Settings and value are '' if they are missing, and as they are stored if not. A key of another type is 'other'. The
--         fences of leases are no grants, but among more than can be read they are counted
-- Writes  nothing. Reads 500 grants at most

local MOST_READ, MOST_NEW = 200, 100

local name, value, permits, start = unpack(KEYS)
local kind = redis.call('type', name).ok
local lives = redis.call('pttl', name)

if kind == 'zset' then
  local first = redis.call('zrange', name, 0, 0)[1]
  if first and #first == 20 and lives >= 0 then
    return { 'sliding_window_log', tostring(redis.call('zcard', name)), lives }
  end
  return { 'other' }
elseif kind == 'string' then
  local text = redis.call('getrange', name, 0, 20)
  if lives < 0 or not string.match(text, '^%d+$') then
    return { 'other' }
  end
  return { redis.call('exists', start) == 1 and 'bucket' or 'fixed_window', text, lives }
elseif kind ~= 'hash' then
  return { 'other' }
end

local settings = redis.call('hmget', name, 'rate', 'interval', 'type', 'keepAliveTime')
if not settings[1] or not settings[2] then
  local fields = redis.call('hmget', name, 'tokens', 'last_refill_timestamp', 'remain', 'quota')
  if fields[1] and fields[2] then
    return { 'token_bucket', fields[1], lives }
  elseif fields[3] and fields[4] then
    return { 'quota_bucket', fields[3], lives }
  end
  return { 'other' }
end

local function permits_of(member)
  if #member ~= 5 + (string.byte(member) or 0) then
    return 0
  end
  local a, b, c, d = string.byte(member, -4, -1)
  return a + b * 256 + c * 65536 + d * 16777216
end

-- The permits of the members, and how many of them are fences.
local function sum(members)
  local total, fences = 0, 0
  for _, member in ipairs(members) do
    local held = permits_of(member)
    total = total + held
    if held == 0 and #member == 29 and string.byte(member) == 24 then
      fences = fences + 1
    end
  end
  return total, fences
end

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stored, number = redis.pcall('get', value), redis.pcall('zcard', permits)
if type(stored) == 'table' or type(number) == 'table' then
  return { 'other' }
end
local interval = tonumber(settings[2]) or 0
if interval ~= interval then
  return { 'other' } -- `nan`, which no score is compared with
end
local horizon = string.format('(%.0f', now - interval)
local live = redis.call('zcount', permits, horizon, '+inf')
local expired = number - live
local held_by_expired, held_by_live, fences = -1, -1, 0
if expired <= MOST_READ then
  held_by_expired, fences = sum(expired == 0 and {} or redis.call('zrange', permits, 0, expired - 1))
  number = number - fences
end
local first = redis.call('zrange', permits, expired, expired + (live <= MOST_READ and MOST_READ or 1) - 1)
if live <= MOST_READ then
  held_by_live, fences = sum(first)
  number = number - fences
elseif permits_of(first[1]) == 0 then
  first = redis.call('zrange', permits, expired, expired + MOST_READ - 1)
end
local oldest = ''
for _, member in ipairs(first) do
  if permits_of(member) > 0 then
    oldest = redis.call('zscore', permits, member)
    break
  end
end
local since = tonumber(ARGV[1])
-- Each grant is in the time between two samples once; one whose score is ahead of now, such as a lease, in a later one.
local from = string.format('%.0f', since < 0 and now + since or since)
local before = string.format('(%.0f', now)
local new = redis.call('zcount', permits, from, before)
local newest = new > 0 and redis.call('zrevrangebyscore', permits, before, from, 'limit', 0, MOST_NEW) or {}
return {
  'rate', settings[1], settings[2], settings[3] or '', settings[4] or '', stored or '', lives, now, number,
  held_by_expired, held_by_live, oldest, new, sum(newest), #newest,
}
