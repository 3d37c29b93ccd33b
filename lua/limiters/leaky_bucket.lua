-- Requests that flow out at a constant pace: so many a unit of time. What does not fit into the bucket is refused.
--
-- KEYS    requests in the bucket, time of the last outflow
-- numbers 1  capacity
--         2  quantity that flows out in a unit
--         3  unit in ms
--         4  ms of the natural unit at whose start a first unit begins, 0 where it begins with the first request
-- Returns 4  requests in the bucket
--         5  time of the last outflow in ms
--         6  1 where the target has its first request, else 0
-- Writes  at a grant the requests, and the time where it moved, each with the time to live that a full bucket takes to
--         flow out

local bucket, started = KEYS[1], KEYS[2]
local capacity, quantity, unit, natural_unit = unpack_numbers('<dddd', numbers)
local limit = capacity + quantity

local value_text, start_text = call('get', bucket), call('get', started)
local value, start = 0, now
if value_text then
  value = whole(value_text)
end
if start_text then
  start = whole(start_text)
end
if not (value and start) then
  return redis.error_reply('BADSTATE the requests or the time of the last outflow are not a whole number')
end
local start_moved = true
if not start_text then
  value = 0
  if natural_unit > 0 then
    start = now - now % natural_unit
  end
else
  value = max(value, 0)
  local units = max(floor((now - start) / unit), 0)
  if units >= ceil(value / quantity) then
    value = 0
  else
    value = value - units * quantity
  end
  start, start_moved = start + units * unit, units > 0
end
local room = limit - value

-- grant_runs.lua

if taken > 0 then
  local time_to_live = format('%d', (ceil(capacity / quantity) + 1) * unit)
  call('set', bucket, format('%d', value + taken), 'px', time_to_live)
  if start_moved then
    call('set', started, format('%d', start), 'px', time_to_live)
  end
end
return pack('<dddddd', server_now, now, 0, value, start, start_text and 0 or 1)
