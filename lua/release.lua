-- Gives permits back without naming their grant: they come out of the oldest live grants, so that no window
-- ever holds more than the rate.
--
-- KEYS    name, value, value of the client, permits, permits of the client
-- ARGV    1  now in ms, or '' for the server's clock
--         2  permits
--         3  the rate at which this caller had the live grants summed lately, '' where it did not
-- Returns the permits left after it
-- Errors  UNINITIALIZED, BADSTATE
-- Writes  the permits left, at most the rate; the oldest grants shrink or go; grants that are over go; the
--         times to live

local books = bookkeeping()
local name, value, client_value, permits, client_permits = unpack(KEYS)
local now, released, summed_rate = books.time_of(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local limiter, failure = books.open(name, value, client_value, permits, client_permits)
if failure then
  return failure
end
failure = books.settle(limiter, now, summed_rate ~= limiter.rate)
if failure then
  return failure
end
books.take_from_oldest(limiter, limiter.excess)
books.credit(limiter, books.take_from_oldest(limiter, released))
limiter.value = nil -- it is written anew in any case, as Redisson does
books.write(limiter, 0)
books.renew(limiter)
return limiter.balance
