-- By how many ms the score of a grant is at most ahead of the time at which it was made: a grant that may be used later than
-- now has the score of its last use. Its member has 24 random bytes, the call id and this number as a little-endian u64.
--
-- Uses    `grant`, the member
-- Sets    `ahead`, 0 for other grants

local ahead = 0
if #grant == 29 and string.byte(grant) == 24 then
  ahead = struct.unpack('<I8', grant, 18)
end
