-- The fence of a lease: a member without permits, at the earliest score that settling may give to the lease. A call that takes
-- permits out of the oldest grants removes the fences that it passes. So while a fence is there, no permits have been taken
-- out of a later grant since the lease was made.
--
-- Uses    `call_id`, of the lease
-- Sets    `fence`

local fence = '\24' .. call_id .. '\0\0\0\0\0\0\32\0' .. '\0\0\0\0' -- 2^53 ms ahead, as if it had been made long ago
