-- Reads the lock of a target. Returns an error if it is of another type.
--
-- Uses    `lock`, its key; `penalty`; `call`, `max`
-- Sets    `locked_for`, the ms for which the target is locked, 0 if it is not; `sets_lock`, whether
--         the lock must be written anew, with the penalty as its time to live; `lock_ttl`
local locked_for = 0
local sets_lock = false
local lock_ttl = call('pttl', lock)
if lock_ttl ~= -2 then
  if call('type', lock).ok ~= 'string' then
    return redis.error_reply('BADSTATE the lock is not a string')
  end
  if lock_ttl == -1 and penalty > 0 then
    -- A lock without a time to live would never expire.
    lock_ttl, sets_lock = penalty, true
  end
  -- In its last millisecond the key still exists, but the lock has expired.
  if lock_ttl ~= 0 then
    locked_for = max(lock_ttl, 1)
  end
end
