-- The whole number that `text` writes as Redis does, or nil: Lua reads ` 5`, `5.0` and `0x5` too, and INCRBY does not.
local function whole(text)
  local number = tonumber(text)
  if number and number > -LARGEST and number < LARGEST and text == format('%d', number) then
    return number
  end
end
