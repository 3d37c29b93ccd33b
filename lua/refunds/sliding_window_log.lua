-- Gives back of a sliding_window_log what a request was charged: as many members of its call, while they count.
--
-- Returns `back`, the permits that were given back
-- Writes  removes the members
--
-- Uses    `log`, `window` of policies/sliding_window_log.lua; `cost`; `mark`, the time of the charge in ms; `charged_by`, the
--         id of the call that made it; `now`, `call`, `pack`
local LARGEST_COST = 500 -- of all requests of a call
local back, unit = 0, LARGEST_COST
while mark > now - window and back < cost and unit > 0 do
  back = back + call('zrem', log, charged_by .. pack('>I4', unit))
  unit = unit - 1
end
