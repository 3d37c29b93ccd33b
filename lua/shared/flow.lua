-- Brings a bucket up to date that fills or drains by `quantity` at the end of each period, as
-- src/policies/bucket.rs does.
--
-- Uses    `used`, how much of the bucket was in use at the stored `start`, the time at which a
--         period began; `start_text`, nil if no start was stored; `limit`; `quantity`, `period`;
--         `clock_unit`, the unit at whose start the first period begins, 0 for none; `now`;
--         `floor`, `ceil`, `max`
-- Sets    `room`; `is_first`, whether the bucket is new; `start_moved`, whether the start changed
-- Changes `used`, `start`, to those of the period in which now lies
local is_first = not start_text
local start_moved = true
-- Only a wrong clock can have stored a start that is further ahead than the whole bucket takes to
-- fill or drain.
if is_first or start - now > ceil(limit / quantity) * period then
  is_first, used, start = true, 0, clock_unit > 0 and now - now % clock_unit or now
else
  local periods = max(floor((now - start) / period), 0)
  used = periods < ceil(used / quantity) and used - periods * quantity or 0
  start, start_moved = start + periods * period, periods > 0
end
local room = limit - used
