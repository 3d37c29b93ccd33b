-- Returns the integer in `text`; nil if it is not in the form that Redis writes. Lua also accepts
-- ` 5`, `5.0` and `0x5`, which INCRBY refuses. A pattern finds the form faster than formatting.
--
-- Uses    `LARGEST`, `find`
-- Sets    `whole`
local function whole(text)
  local number = tonumber(text)
  if number and number > -LARGEST and number < LARGEST
    and (text == '0' or find(text, '^%-?[1-9]%d*$')) then
    return number
  end
end
