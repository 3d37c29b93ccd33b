-- Gives back of a sliding_window_log what a request was charged: as many members of its call, while
-- they count.
--
-- Returns `given_back`, the permits that were given back
-- Writes  removes the members
--
-- Uses    `log`, `window` of policies/sliding_window_log.lua; `cost`; `mark`, the time in ms of the
--         charge; `charged_id`, the id of the call that made it; `now`, `call`, `pack`
local LARGEST_COST = 500 -- of all requests of a call
local given_back, unit = 0, LARGEST_COST
while mark > now - window and given_back < cost and unit > 0 do
  given_back = given_back + call('zrem', log, charged_id .. pack('>I4', unit))
  unit = unit - 1
end
