-- The fence of a lease: a member without permits, at the earliest score that settling may give to
-- the lease. A call that takes permits out of the oldest grants removes the fences that it passes.
-- So while a fence exists, no permits have been taken out of a later grant since the lease was
-- made. Whatever removes or settles a lease removes its fence, because Redisson asks without pause
-- while the oldest member holds nothing and has expired.
--
-- Uses    `call_id`, of the lease; to remove the fence also `window`, `limiter`, `now`, `audit`
-- Sets    `fence`, the member; `fence_score`, its score if it was removed, nil if it was missing or
--         has expired

--! part name
-- 24, the length byte of a lease; then 2^53 ms ahead, as if made long ago, and no permits.
local fence = '\24' .. call_id .. '\0\0\0\0\0\0\32\0' .. '\0\0\0\0'
--! end

local fence_score = tonumber(redis.call('zscore', limiter.permits_key, fence) or '')
if fence_score and fence_score > now - limiter.interval then
  redis.call('zrem', limiter.permits_key, fence)
  window.note_change(audit, fence, window.digits(fence_score), 0, true)
else
  fence_score = nil -- no call passes an expired fence, which is removed like any expired grant
end
