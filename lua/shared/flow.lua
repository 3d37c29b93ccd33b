-- Brings a bucket up to date out of which, or into which, a quantity flows at the end of each
-- period, as src/policies/bucket.rs does.
--
-- Uses    `used`, how much of the bucket is in use as it is stored; `start`, when the period began
--         up to which that is counted, if `start_text` was stored; `limit`; `quantity`, `period`;
--         `clock_unit`, at whose start the first period begins, 0 for none; `now`; `floor`, `ceil`,
--         `max`
-- Sets    `room`; `is_first`, whether the bucket is new; `start_moved`
-- Changes `used`, `start`
local is_first, start_moved = not start_text, true
-- Only a clock that was wrong can have written a start that is further ahead than the whole bucket
-- takes to flow.
if is_first or start - now > ceil(limit / quantity) * period then
  is_first, used, start = true, 0, clock_unit > 0 and now - now % clock_unit or now
else
  local periods = max(floor((now - start) / period), 0)
  used = periods < ceil(used / quantity) and used - periods * quantity or 0
  start, start_moved = start + periods * period, periods > 0
end
local room = limit - used
