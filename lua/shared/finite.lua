-- Returns the number in `text`, rounded down; nil if it is not a number between -2^53 and 2^53.
--
-- Uses    `LARGEST`, `floor`
-- Sets    `finite`
local function finite(text)
  local number = tonumber(text)
  if number and number > -LARGEST and number < LARGEST then
    return floor(number)
  end
end
