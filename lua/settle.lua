-- Settles a lease, a grant whose score is ahead of the clock: the permits that were not used come
-- back, and the others count from their last use.
--
-- A permit granted out of a lease may be released by another client, which names no grant: then it
-- is taken out of the oldest grant, and what this lease was used for must count by its score. So
-- the score becomes that of the last use only if no permits were taken out of a grant later than
-- the lease's fence (shared/fence.lua). Else it becomes two milliseconds more: a settled lease
-- never has the score that it was made with.
--
-- KEYS    name, value, value of the client, permits, permits of the client, audit
-- ARGV    1  now in ms, '' for the server's clock
--         2  score of the lease
--         3  its call id
--         4  permits of the lease
--         5  how many of them were used
--         6  ms by which the last use came before the score
--         7  ms by which the fence is before the score, at least
--         8  audited rate, as ARGV[3] of acquire.lua
-- Returns the permits returned; 0 if the lease has expired, or is settled already
-- Errors  UNINITIALIZED, BADSTATE
-- Writes  moves or removes the member, removes its fence, and raises the value by the permits
--         returned; removes expired grants; the times to live. Nothing if the lease is not found
-- Tells   as refund.lua

--! include shared/limits.lua
--! include shared/window.lua

local given_now, score, call_id = ARGV[1], ARGV[2] + 0, ARGV[3]
local leased, used, early, until_fence = ARGV[4] + 0, ARGV[5] + 0, ARGV[6] + 0, ARGV[7] + 0
local audited_rate = tonumber(ARGV[8])

--! include shared/open_limiter.lua

local key = limiter.permits_key
-- 24 is the length byte of a lease.
local member = score > now - limiter.interval and window.find_at(key, ARGV[2], '\24' .. call_id)
if not member then
  return 0
end
failure = window.reconcile(limiter, now, audited_rate ~= limiter.rate, 0)
if failure then
  return failure
end

--! include shared/fence.lua
local held = window.permits_of(member)
local settled_score = score + 2 -- not 1: 2^53 + 1 is no double
-- Permits that releases took out of the grant are back already, and may be among the used ones.
local left = math.max(math.min(used - math.max(leased - held, 0), held), 0)
-- A later fence is that of a copy of the call, which was granted too.
if fence_score and fence_score <= score - until_fence and early > 0 then
  settled_score = math.max(score - early, fence_score)
end
-- The grant changes before `prepare` takes the excess of a peer's release out of what remains.
if left > 0 then
  local grant = member
  --! include shared/ahead.lua
  ahead = math.max(ahead + (settled_score - score), 0)
  local id = call_id .. struct.pack('<I8', ahead)
  window.shrink(key, window.digits(settled_score), member, left, id)
else
  redis.call('zrem', key, member)
end
window.note_change(audit, member, ARGV[2], held, true)
window.prepare(limiter)
local returned = held - left
--! include shared/free.lua
return returned
