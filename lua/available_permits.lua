-- Tells how many permits an acquire would find now.
--
-- KEYS    name, value, value of the client, permits, permits of the client
-- ARGV    1  now in ms, or '' for the server's clock
-- Returns the permits
-- Errors  UNINITIALIZED, BADSTATE
-- Writes  nothing

local books = bookkeeping()
local name, value, client_value, permits, client_permits = unpack(KEYS)
local now = books.time_of(ARGV[1])

local limiter, failure = books.open(name, value, client_value, permits, client_permits)
if failure then
  return failure
end
failure = books.settle(limiter, now, true)
if failure then
  return failure
end
return math.max(limiter.balance, 0)
