-- Says what a key is, and of a rate limiter how much is in use.
--
-- KEYS    name, value, permits; the start of a bucket with that name
-- ARGV    1  ms since the epoch from which on, up to now, grants are counted as new; if it is negative, ms before now
-- Returns an array that begins with the kind:
--         'rate', rate, interval, type, keep alive, value, time to live of the hash, now, stored grants, permits of the expired
--                 ones (-1: too many to read), permits of the live ones (the same), score of the oldest live one that holds
--                 permits, new grants, permits of the newest of them, their number, members that are no grants among those
--                 that were read, the types of value and permits, ms until a hold ends that takes all permits ('' if none of those read is one)
--         'token_bucket', 'quota_bucket', 'sliding_window_log', 'fixed_window', 'bucket', each with what it holds and its time
--                 to live
--         'other'
--         Settings and value are '' if they are missing, and as they are stored if not. A hash is a limiter's if it has two of
--         rate, interval and type. The fences of leases are no grants, but among more than can be read they are counted
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
local fields = redis.call('hmget', name, 'tokens', 'last_refill_timestamp', 'remain', 'quota')
local known = (settings[1] and 1 or 0) + (settings[2] and 1 or 0) + (settings[3] and 1 or 0)
if known < 2 then
  if fields[1] and fields[2] then
    return { 'token_bucket', fields[1], lives }
  elseif fields[3] and fields[4] then
    return { 'quota_bucket', fields[3], lives }
  end
  return { 'other' }
end

local rate, interval = tonumber(settings[1] or ''), tonumber(settings[2] or '') or 0
if interval ~= interval then
  interval = 0 -- `nan`, which no score is compared with
end
local broken, hold = 0, nil

-- The permits of a member, and whether it is a fence. What is no grant holds none. A negative number of permits, which
-- Redisson does not refuse, stands for billions; all but the hold of a limiter, whose member is a lease's.
local function permits_of(member)
  if #member ~= 5 + (string.byte(member) or 0) then
    broken = broken + 1
    return 0, false
  end
  local a, b, c, d = string.byte(member, -4, -1)
  local held = a + b * 256 + c * 65536 + d * 16777216
  if held == 4294967295 and #member == 29 then
    hold = member
    return held, false
  elseif held >= 2147483648 and rate and held > rate then
    held = 0
  end
  local is_fence = held == 0 and #member == 29 and string.byte(member) == 24
  if held == 0 and not is_fence then
    broken = broken + 1
  end
  return held, is_fence
end

-- The permits of the members, how many of them are fences, and the first that holds some.
local function sum(members)
  local total, fences, first = 0, 0, nil
  for _, member in ipairs(members) do
    local held, is_fence = permits_of(member)
    total, fences = total + held, fences + (is_fence and 1 or 0)
    first = first or held > 0 and member or nil
  end
  return total, fences, first
end

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local type_of_value, type_of_permits = redis.call('type', value).ok, redis.call('type', permits).ok
local stored = type_of_value == 'string' and redis.call('getrange', value, 0, 40) or ''
local since = tonumber(ARGV[1])
local number, held_by_expired, held_by_live, oldest, new, newest, held_for = 0, 0, 0, '', 0, {}, ''
if type_of_permits == 'zset' then
  local horizon = string.format('(%.0f', now - interval)
  local live = redis.call('zcount', permits, horizon, '+inf')
  number = redis.call('zcard', permits)
  local expired, fences, first = number - live, 0, nil
  held_by_expired, held_by_live = -1, -1
  if expired <= MOST_READ then
    held_by_expired, fences = sum(expired == 0 and {} or redis.call('zrange', permits, 0, expired - 1))
    number = number - fences
  end
  local read = live <= MOST_READ
  local total
  hold = nil -- of those that have ended
  total, fences, first = sum(redis.call('zrange', permits, expired, expired + MOST_READ - 1))
  held_for = hold and string.format('%.0f', redis.call('zscore', permits, hold) + interval - now) or ''
  if read then
    held_by_live, number = total, number - fences
  end
  oldest = first and redis.call('zscore', permits, first) or ''
  -- Each grant is in the time between two samples once; one whose score is ahead of now, such as a lease, in a later one.
  local from = string.format('%.0f', since < 0 and now + since or since)
  local before = string.format('(%.0f', now)
  new = redis.call('zcount', permits, from, before)
  newest = new > 0 and redis.call('zrevrangebyscore', permits, before, from, 'limit', 0, MOST_NEW) or {}
end
local were_broken = broken
hold = nil
local used = sum(newest)
used = hold and 0 or used -- what a hold takes is used by nobody
return {
  'rate', settings[1] or '', settings[2] or '', settings[3] or '', settings[4] or '', stored, lives, now, number,
  held_by_expired, held_by_live, oldest, new, used, #newest, were_broken, type_of_value, type_of_permits, held_for,
}
