-- Gives permits back without naming their grant: they come out of the oldest live grants, so that no window
-- ever holds more than the rate.
--
-- KEYS    name, value, value of the client, permits, permits of the client, audit
-- ARGV    1  now in ms, or '' for the server's clock
--         2  permits
--         3  the rate at which this caller had the grants audited lately, '' where it did not
-- Returns how many permits the caller has to release with another call: a call takes them out of 500 grants at most
-- Errors  UNINITIALIZED, BADSTATE
-- Writes  the permits left, at most the rate; the oldest live grants shrink or go; expired grants go; the times to live

local books = bookkeeping()
local name, value, client_value, permits, client_permits, audit = unpack(KEYS)
local now, released, audited_rate = books.time_of(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local limiter, failure = books.open(name, value, client_value, permits, client_permits)
if failure then
  return failure
end
failure = books.settle(limiter, now, audited_rate ~= limiter.rate, 0)
if failure then
  return failure
end
books.take_from_oldest(limiter, limiter.gone, limiter.excess)
local expired = redis.call('zcount', limiter.permits_key, '-inf', books.digits(limiter.horizon))
if expired > limiter.gone then
  books.end_audit(audit) -- it takes what goes from the front for expired grants
end
local taken, has_more = books.take_from_oldest(limiter, expired, released)
books.credit(limiter, taken)
limiter.stored = nil -- it is written anew in any case, as Redisson does
books.write(limiter, 0)
books.renew(limiter)
return has_more and released - taken or 0
