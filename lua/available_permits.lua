-- Tells how many permits an acquire would find now.
--
-- These are the permits left and those of the grants that have expired. Where both the expired and the live grants are many,
-- a call reads a page of the expired ones, from the newest to the oldest, and the next call goes on from there. Meanwhile others
-- may remove the oldest of them: their permits are among those left then, so that the sum stays.
--
-- KEYS    name, value, value of the client, permits, permits of the client
-- ARGV    1  now in ms, or '' for the server's clock
--         2… left out in the first call, else what the call before returned
--         2  grants up to this score have expired
--         3  the permits of the expired grants that were read
--         4  how many they are
--         5  the oldest of them
-- Returns an array: the permits; or ARGV[2] to ARGV[5] of the next call, ARGV[5] left out where the expired grants that were
--         read have changed, so that it starts again
-- Errors  UNINITIALIZED, BADSTATE
-- Writes  nothing

local books = bookkeeping()
local name, value, client_value, permits, client_permits = unpack(KEYS)
local now, horizon = books.time_of(ARGV[1]), ARGV[2]
local sum, count, oldest = tonumber(ARGV[3] or 0), tonumber(ARGV[4] or 0), ARGV[5]

local limiter, failure = books.open(name, value, client_value, permits, client_permits)
if failure then
  return failure
end
local key, number = limiter.permits_key, redis.call('zcard', limiter.permits_key)
local function answer(left)
  return { books.digits(math.max(math.min(left, limiter.rate), 0)) }
end

if number <= SUMMED then
  failure = books.settle(limiter, now, true, 0)
  return failure or answer(limiter.balance)
end

horizon = horizon or books.digits(now - limiter.interval)
local expired = redis.call('zcount', key, '-inf', horizon)
if expired == number then
  return answer(limiter.rate)
elseif not oldest and expired > PAGE and number - expired <= PAGE then
  return answer(limiter.rate - books.sum(redis.call('zrange', key, books.digits(expired), books.digits(number - 1))))
end

local unread = expired
if oldest then
  unread = redis.call('zrank', key, oldest)
  if not unread or expired - unread ~= count then
    return { horizon, '0', '0' }
  end
end
local first = math.max(unread - PAGE, 0)
local page = unread > 0 and redis.call('zrange', key, books.digits(first), books.digits(unread - 1)) or {}
sum = sum + books.sum(page)
if first == 0 then
  return answer((limiter.value or 0) + sum)
end
return { horizon, books.digits(sum), books.digits(count + #page), page[1] }
