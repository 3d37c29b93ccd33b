-- Returns permits to the limiter without naming their grant. They are taken out of the oldest live
-- grants, so that no window holds more than the rate.
--
-- KEYS    name, value, value of the client, permits, permits of the client, audit
-- ARGV    1  now in ms, '' for the server's clock
--         2  permits
--         3  audited rate, as ARGV[3] of acquire.lua
-- Returns the permits that another call has to release: one call reads at most 500 grants
-- Errors  UNINITIALIZED, BADSTATE
-- Writes  the value, at most the rate; shrinks or removes the oldest live grants; removes expired
--         grants; the times to live
-- Tells   the clients that wait, by shared/publish_freed.lua, unless the limiter is per client

--! include shared/limits.lua
--! include shared/window.lua

local given_now, released, audited_rate = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

--! include shared/open_limiter.lua

failure = window.reconcile(limiter, now, audited_rate ~= limiter.rate, 0)
if failure then
  return failure
end
window.prepare(limiter)
local expired = redis.call('zcount', limiter.permits_key, '-inf', window.digits(limiter.horizon))
if expired > limiter.expired then
  window.end_audit(audit) -- an audit assumes that only expired grants are removed from the front
end
local returned, has_more = window.take_from_oldest(limiter, expired, released)
limiter.stored_value = nil -- so that the value is written in any case, as Redisson does
--! include shared/free.lua
return has_more and released - returned or 0
