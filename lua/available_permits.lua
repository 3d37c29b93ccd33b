-- Returns how many permits an acquire would find available now.
--
-- These are the value and the permits of the expired grants. If both the expired and the live grants are many, a call
-- reads a page of the expired ones, from the newest to the oldest, and the next call continues from there. Others may
-- remove the oldest meanwhile: their permits are then part of the value, so the sum stays the same.
--
-- KEYS    name, value, value of the client, permits, permits of the client
-- ARGV    1  now in ms, '' for the server's clock
--         2… left out in the first call, else the reply to the call before
--         2  grants with at most this score have expired
--         3  permits of the expired grants that were read
--         4  their number
--         5  the oldest of them
-- Returns an array: the available permits, 0 at least; or ARGV[2] to ARGV[5] of the next call, without ARGV[5] if the
--         expired grants that were read have changed, so that it starts again
-- Errors  UNINITIALIZED, BADSTATE
-- Writes  nothing

--! include shared/limits.lua
--! include shared/window.lua

local window = load_window()
local name, value, client_value, permits, client_permits = unpack(KEYS)
local now, horizon = window.time_of(ARGV[1]), ARGV[2]
local sum, count, oldest = tonumber(ARGV[3] or 0), tonumber(ARGV[4] or 0), ARGV[5]

local limiter, failure = window.open(name, value, client_value, permits, client_permits)
if failure then
  return failure
end
local key, number = limiter.permits_key, redis.call('zcard', limiter.permits_key)
local function reply(available)
  return { window.digits(math.max(math.min(available, limiter.rate), 0)) }
end

if number <= MOST_SUMMED then
  failure = window.reconcile(limiter, now, true, limiter.rate)
  return failure or reply(limiter.available)
end

horizon = horizon or window.digits(now - limiter.interval)
local expired = redis.call('zcount', key, '-inf', horizon)
if expired == number then
  return reply(limiter.rate)
elseif not oldest and expired > MOST_READ and number - expired <= MOST_READ then
  return reply(limiter.rate - window.sum(redis.call('zrange', key, window.digits(expired), window.digits(number - 1))))
end

local unread = expired
if oldest then
  unread = redis.call('zrank', key, oldest)
  if not unread or expired - unread ~= count then
    return { horizon, '0', '0' }
  end
end
local first = math.max(unread - MOST_READ, 0)
local page = unread > 0 and redis.call('zrange', key, window.digits(first), window.digits(unread - 1)) or {}
sum = sum + window.sum(page)
if first == 0 then
  return reply((limiter.value or 0) + sum)
end
return { horizon, window.digits(sum), window.digits(count + #page), page[1] }
