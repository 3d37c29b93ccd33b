-- For how many ms the target is locked out, 0 where it is not; and whether its lock has to be set.
local locked_for, sets_lock = 0, false
local left = call('pttl', lock)
if left ~= -2 then
  if call('type', lock).ok ~= 'string' then
    return redis.error_reply('BADSTATE the lock is no string')
  end
  if left == -1 and penalty > 0 then
    -- Nobody would ever unlock it.
    left, sets_lock = penalty, true
  end
  -- In its last millisecond the server still has the lock, but its time is over.
  if left ~= 0 then
    locked_for = max(left, 1)
  end
end
