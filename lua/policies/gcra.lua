-- A rate with bursts, by one number: the theoretical arrival time. Each unit of cost moves it by
-- the emission interval, from now on at the earliest, as far as the burst allows.
--
-- KEYS    theoretical arrival time in us since the epoch
-- numbers 1  burst, the most that is granted at once
--         2  emission interval in us: the time in which a unit comes back
-- Returns 4  theoretical arrival time in us, now if nothing is in use
-- Writes  at a grant the arrival time, with the time until then as its time to live: then all cost
--         is back, whatever numbers the callers have

--! include shared/limits.lua
--! include shared/policy.lua
--! include shared/whole.lua
--! include shared/one_target.lua

--! part read
local key = KEYS[1]
local limit, interval = unpack_numbers('<dd', numbers)

local text = call('get', key)
local now_us = now * 1000
local arrival = now_us
if text then
  arrival = whole(text)
  if not arrival then
    return redis.error_reply('BADSTATE the arrival time is not an integer')
  end
  arrival = max(arrival, now_us)
end
local room = floor((now_us + limit * interval - arrival) / interval)
--! end

--! include shared/grant_runs.lua

--! part state
local state = pack('<dddd', server_now, now, 0, arrival)
--! end

--! part write
if taken > 0 then
  local next_arrival = arrival + taken * interval
  local time_to_live = ceil((next_arrival - now_us) / 1000)
  call('set', key, format('%d', next_arrival), 'px', format('%d', time_to_live))
end
return state
--! end
