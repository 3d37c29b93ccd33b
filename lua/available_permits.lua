-- Returns how many permits an acquire would find available now.
--
-- Where both the expired and the live grants are many, each call reads a page of the expired ones,
-- and the next call continues after it.
--
-- KEYS    name, value, value of the client, permits, permits of the client
-- ARGV    1  now in ms, '' for the server's clock
--         2… left out in the first call, else the reply to the call before
--         2  now of the first call
--         3  permits of the expired grants that were read
--         4  their number
--         5  the oldest of them
-- Returns an array: the available permits, 0 at least; or ARGV[2] to ARGV[5] of the next call
-- Errors  UNINITIALIZED, BADSTATE
-- Writes  nothing

--! include shared/limits.lua
--! include shared/window.lua

local given_now, oldest = ARGV[2] or ARGV[1], ARGV[5]
local sum, number = tonumber(ARGV[3] or 0), tonumber(ARGV[4] or 0)

--! include shared/open_limiter.lua

local is_last
is_last, sum, number, oldest = window.sum_expired(limiter, now, sum, number, oldest)
if not is_last then
  return { window.digits(now), window.digits(sum), window.digits(number), oldest }
end
local is_summed = redis.call('zcard', limiter.permits_key) <= MOST_SUMMED
failure = window.reconcile(limiter, now, is_summed, 0, sum)
return failure or { window.digits(math.max(limiter.available, 0)) }
