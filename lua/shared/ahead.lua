-- By how many ms, at most, the score of a grant is ahead of the time when it was made. A lease is
-- used later, and scored by its last use: its member has 24 random bytes, the call id and these ms
-- as a little-endian u64.
--
-- Uses    `grant`, the member
-- Sets    `ahead`, 0 for a grant that is no lease

local ahead = 0
if #grant == 29 and string.byte(grant) == 24 then -- 1 + 24 + 4 bytes of permits
  ahead = struct.unpack('<I8', grant, 18)
end
