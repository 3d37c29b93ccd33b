-- Gives back of a sliding_window_counter what a request was charged: takes it from the counter of
-- its period, while that is in the window.
--
-- Returns `given_back`, the permits that were given back
-- Writes  the counter
--
-- Uses    `counters`, `current_end`, `window` of policies/sliding_window_counter.lua; `whole`;
--         `cost`; `mark`, the last ms of the period of the charge; `call`, `format`, `min`, `max`
local counter = counters .. format('%d', mark)
local given_back = 0
local text = mark > current_end - window and call('get', counter)
if text then
  given_back = max(min(cost, whole(text) or 0), 0)
end
if given_back > 0 then
  call('decrby', counter, format('%d', given_back))
end
