-- Reads the permits of a grant from its member: a length byte, that many random bytes, and the
-- permits as a little-endian u32. Straight-line code: a function would cost as much as a command.
--
-- Uses    `grant`, the member
-- Sets    `held`, 0 if the member is malformed

local held = 0
if #grant == 5 + (string.byte(grant) or 0) then
  local a, b, c, d = string.byte(grant, -4, -1)
  held = a + b * 256 + c * 65536 + d * 16777216
end
