-- Gives permits back without naming their grant: they come out of the oldest live grants, so that no window
-- ever holds more than the rate.
--
-- KEYS    name, value, value of the client, permits, permits of the client
-- ARGV    1  now in ms, or '' for the server's clock
--         2  permits
-- Returns the permits left after it
-- Errors  UNINITIALIZED, BADSTATE
-- Writes  the permits left, at most the rate; the oldest grants shrink or go; grants that are over go; the
--         times to live

local name, value, client_value, permits, client_permits = unpack(KEYS)
local now, released = time_of(ARGV[1]), tonumber(ARGV[2])

local limiter, failure = open(name, value, client_value, permits, client_permits)
if failure then
  return failure
end
settle(limiter, now, false)
take_from_oldest(limiter, limiter.excess + released)
limiter.balance = math.min(limiter.balance + released, limiter.rate)
limiter.value = nil -- it is written anew in any case, as Redisson does
write(limiter, 0)
renew(limiter)
return limiter.balance
