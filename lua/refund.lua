-- Gives the permits of one grant back, exactly and once.
--
-- KEYS    name, value, value of the client, permits, permits of the client, audit
-- ARGV    1  now in ms, or '' for the server's clock
--         2  score of the grant
--         3  random bytes of the grant
--         4  permits to give back
--         5  the rate at which this caller had the grants audited lately, '' where it did not
-- Returns how many permits came back: fewer than asked where others released part of the grant, 0 where its
--         window has passed
-- Errors  UNINITIALIZED, BADSTATE
-- Writes  the member shrinks or goes, and the permits left rise by as much; expired grants go; the times to
--         live. Nothing where the grant is not found

local books = bookkeeping()
local name, value, client_value, permits, client_permits, audit = unpack(KEYS)
local now, score, random = books.time_of(ARGV[1]), ARGV[2], ARGV[3]
local refunded, audited_rate = tonumber(ARGV[4]), tonumber(ARGV[5])

local limiter, failure = books.open(name, value, client_value, permits, client_permits)
if failure then
  return failure
end
if tonumber(score) <= now - limiter.interval then
  return 0
end

local member = books.find_at(limiter.permits_key, score, string.char(#random) .. random)
if not member then
  return 0
end
failure = books.settle(limiter, now, audited_rate ~= limiter.rate, 0)
if failure then
  return failure
end
local held = books.permits_of(member)
local back = math.min(refunded, held)
-- The grant first: a peer's release is made good out of what remains.
if held > back then
  redis.call('zadd', limiter.permits_key, score, books.pack(random, held - back))
end
redis.call('zrem', limiter.permits_key, member)
books.note_change(audit, member, score, back, held == back)
books.take_from_oldest(limiter, limiter.gone, limiter.excess)
books.credit(limiter, back)
books.write(limiter, 0)
books.renew(limiter)
return back
