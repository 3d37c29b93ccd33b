-- Gives back of a sliding_window_counter what a request was charged: of the counter of its period, while that is in the window.
--
-- Returns `back`, the permits that were given back
-- Writes  the counter
--
-- Uses    `counters`, `current`, `window` of policies/sliding_window_counter.lua; `whole`; `cost`; `mark`, the last ms of the
--         period of the charge; `call`, `format`, `min`, `max`
local counter, back = counters .. format('%d', mark), 0
local counted = mark > current - window and call('get', counter)
if counted then
  back = max(min(cost, whole(counted) or 0), 0)
end
if back > 0 then
  call('decrby', counter, format('%d', back))
end
