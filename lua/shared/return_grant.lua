-- Returns permits of one grant: shrinks it, or removes it, with the fence of a lease, and raises
-- the value by as much.
--
-- Uses    `window`, `limiter`, `now`, `value`, `audit`, `failure` of shared/open_limiter.lua;
--         `member`, the grant, and its `score`; `number`, the permits to return; `audited_rate`
-- Sets    `returned`, the permits returned, at most those that the grant `held`; `publish_freed`
-- Changes `failure`, which is nil before and after

failure = window.reconcile(limiter, now, audited_rate ~= limiter.rate, 0)
if failure then
  return failure
end
local held = window.permits_of(member)
local returned = math.min(number, held)
-- The grant changes before `prepare` takes the excess of a peer's release out of what remains.
if returned == held then
  redis.call('zrem', limiter.permits_key, member)
  window.note_change(audit, member, score, returned, true)
  if string.byte(member) == 24 then -- the length byte of a lease
    local call_id = string.sub(member, 2, 17)
    --! include shared/fence.lua
  end
elseif window.shrink(limiter.permits_key, score, member, held - returned) then
  window.note_change(audit, member, score, returned, false)
else
  window.end_audit(audit) -- with another id the grant may have another place
end
window.prepare(limiter)
--! include shared/free.lua
