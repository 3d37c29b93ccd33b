-- The number that `text` writes, rounded down, or nil.
local function finite(text)
  local number = tonumber(text)
  if number and number > -LARGEST and number < LARGEST then
    return floor(number)
  end
end
