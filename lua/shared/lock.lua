-- Reads the lock of a target. Returns an error if it is of another type.
--
-- Uses    `lock`, its key; `penalty`; `call`, `max`
-- Sets    `locked_for`, the ms for which the target is locked out, 0 if it is not; `sets_lock`, whether the lock has to be
--         written again, for the time of the penalty; `left`
local locked_for, sets_lock = 0, false
local left = call('pttl', lock)
if left ~= -2 then
  if call('type', lock).ok ~= 'string' then
    return redis.error_reply('BADSTATE the lock is not a string')
  end
  if left == -1 and penalty > 0 then
    -- A lock without a time to live would never expire.
    left, sets_lock = penalty, true
  end
  -- In its last millisecond the key still exists, but the lock has expired.
  if left ~= 0 then
    locked_for = max(left, 1)
  end
end
