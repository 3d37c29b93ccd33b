-- The integer in `text`; nil if it is not in the form that Redis writes. Lua also accepts ` 5`, `5.0` and `0x5`, which
-- INCRBY refuses.
--
-- Uses    `LARGEST`, `format`
-- Sets    `whole`
local function whole(text)
  local number = tonumber(text)
  if number and number > -LARGEST and number < LARGEST and text == format('%d', number) then
    return number
  end
end
