-- The fence of a lease: a member without permits, at the earliest score that settling may give to the lease. A call that takes
-- permits out of the oldest grants removes the fences that it passes. So while a fence is there, no permits have been taken
-- out of a later grant since the lease was made. What removes or settles the lease removes its fence: Redisson waits for the oldest
-- member, and asks without pause once that has expired and holds nothing.
--
-- Uses    `call_id`, of the lease; to remove the fence also `window`, `limiter`, `now`, `audit`
-- Sets    `fence`; `fenced`, the score of the fence that was removed, nil if there was none or it has expired

--! part name
local fence = '\24' .. call_id .. '\0\0\0\0\0\0\32\0' .. '\0\0\0\0' -- 2^53 ms ahead, as if it had been made long ago
--! end

local fenced = tonumber(redis.call('zscore', limiter.permits_key, fence) or '')
if fenced and fenced > now - limiter.interval then
  redis.call('zrem', limiter.permits_key, fence)
  window.note_change(audit, fence, window.digits(fenced), 0, true)
else
  fenced = nil -- one that has expired is removed as any grant, and no call passes it
end
