-- Reads what a key is, and how much of a rate limiter is in use.
--
-- KEYS    name, value, permits; the start of a bucket with that name
-- ARGV    1  ms since the epoch from which on, up to now, grants are counted as new; if it is
--            negative, ms before now
-- Returns an array that begins with the kind of the key
--         'rate', rate, interval, type, keep alive, value, time to live of the hash, now, number of
--                 grants, permits of the expired ones (-1: too many to read), of the live ones
--                 (likewise), score of the oldest live one with permits, number of new grants,
--                 permits of the newest of them, how many these are, number of members read that
--                 are no grants, the types of value and permits, ms until a hold of all permits
--                 ends ('' if none was read)
--         'token_bucket', 'quota_bucket', 'sliding_window_log', 'fixed_window', 'bucket', each with
--                 what it holds and its time to live
--         'other'
--         Settings and value are as they are stored, '' if they are missing. A hash is a limiter's
--         if it has two of rate, interval and type. The fences of leases are no grants, but are
--         counted if the grants are too many to read
-- Writes  nothing. Reads 500 grants at most

local MOST_READ, MOST_NEW = 200, 100
local LEASE_SIZE = 29 -- bytes of a lease's member: a length byte, which is 24, 24, and 4 of permits

local name, value, permits, start = unpack(KEYS)
local kind = redis.call('type', name).ok
local ttl = redis.call('pttl', name)

if kind == 'zset' then
  local first = redis.call('zrange', name, 0, 0)[1]
  if first and #first == 20 and ttl >= 0 then -- a call id of 16 bytes, and a u32
    return { 'sliding_window_log', tostring(redis.call('zcard', name)), ttl }
  end
  return { 'other' }
elseif kind == 'string' then
  local text = redis.call('getrange', name, 0, 20)
  if ttl < 0 or not string.match(text, '^%d+$') then
    return { 'other' }
  end
  return { redis.call('exists', start) == 1 and 'bucket' or 'fixed_window', text, ttl }
elseif kind ~= 'hash' then
  return { 'other' }
end

local settings = redis.call('hmget', name, 'rate', 'interval', 'type', 'keepAliveTime')
local fields = redis.call('hmget', name, 'tokens', 'last_refill_timestamp', 'remain', 'quota')
local known = (settings[1] and 1 or 0) + (settings[2] and 1 or 0) + (settings[3] and 1 or 0)
if known < 2 then
  if fields[1] and fields[2] then
    return { 'token_bucket', fields[1], ttl }
  elseif fields[3] and fields[4] then
    return { 'quota_bucket', fields[3], ttl }
  end
  return { 'other' }
end

local rate, interval = tonumber(settings[1] or ''), tonumber(settings[2] or '') or 0
if interval ~= interval then
  interval = 0 -- of `nan`, which no score can be compared with
end
local malformed = 0 -- members read that are no grants
local hold -- the last member read that holds all permits

-- Returns the permits of a member, and whether it is a fence. What is no grant holds none, and so
-- does a negative number of permits, which Redisson does not refuse and which reads as billions,
-- unless it is the hold of a limiter, whose member has the form of a lease's.
local function permits_of(member)
  if #member ~= 5 + (string.byte(member) or 0) then
    malformed = malformed + 1
    return 0, false
  end
  local a, b, c, d = string.byte(member, -4, -1)
  local held = a + b * 256 + c * 65536 + d * 16777216
  if held == 4294967295 and #member == LEASE_SIZE then
    hold = member
    return held, false
  elseif held >= 2147483648 and rate and held > rate then
    held = 0
  end
  local is_fence = held == 0 and #member == LEASE_SIZE and string.byte(member) == 24
  if held == 0 and not is_fence then
    malformed = malformed + 1
  end
  return held, is_fence
end

-- Returns the permits of the members, how many of them are fences, and the first that holds some.
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
local value_type, permits_type = redis.call('type', value).ok, redis.call('type', permits).ok
local value_text = value_type == 'string' and redis.call('getrange', value, 0, 40) or ''
local since = tonumber(ARGV[1])
local number, held_by_expired, held_by_live = 0, 0, 0
local oldest_score, until_hold_ends = '', ''
local new_number, newest = 0, {}
if permits_type == 'zset' then
  local horizon = string.format('(%.0f', now - interval)
  local live = redis.call('zcount', permits, horizon, '+inf')
  number = redis.call('zcard', permits)
  local expired = number - live
  held_by_expired, held_by_live = -1, -1
  if expired <= MOST_READ then
    local members = expired == 0 and {} or redis.call('zrange', permits, 0, expired - 1)
    local held, fences = sum(members)
    held_by_expired, number = held, number - fences
  end
  hold = nil -- one that has expired does not count
  local members = redis.call('zrange', permits, expired, expired + MOST_READ - 1)
  local held, fences, first = sum(members)
  until_hold_ends = hold
    and string.format('%.0f', redis.call('zscore', permits, hold) + interval - now) or ''
  if live <= MOST_READ then
    held_by_live, number = held, number - fences
  end
  oldest_score = first and redis.call('zscore', permits, first) or ''
  -- Each grant is new in one sample: in a later one if its score is ahead of now, as a lease's is.
  local from = string.format('%.0f', since < 0 and now + since or since)
  local before = string.format('(%.0f', now)
  new_number = redis.call('zcount', permits, from, before)
  newest = new_number > 0
    and redis.call('zrevrangebyscore', permits, before, from, 'limit', 0, MOST_NEW) or {}
end
local malformed_number = malformed -- without those among the newest: they were counted before
hold = nil
local newest_permits = sum(newest)
newest_permits = hold and 0 or newest_permits -- what a hold takes is used by nobody
return {
  'rate', settings[1] or '', settings[2] or '', settings[3] or '', settings[4] or '', value_text,
  ttl, now, number, held_by_expired, held_by_live, oldest_score, new_number, newest_permits,
  #newest, malformed_number, value_type, permits_type, until_hold_ends,
}
