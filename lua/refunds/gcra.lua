-- Gives back of a gcra what a request was charged, less what has come back since.
--
-- Returns `given_back`, the permits that were given back
-- Writes  the arrival time, with the time until then as its time to live; deletes it if all is back
--
-- Uses    `key`, `arrival`, `now_us`, `interval` of policies/gcra.lua; `cost`; `mark`, the time of
--         the charge in ms; `call`, `format`, `floor`, `ceil`, `min`, `max`
local remaining_us = min(cost * interval - max(now_us - mark * 1000, 0), arrival - now_us)
local given_back = max(floor(remaining_us / interval), 0)
if given_back > 0 then
  local earlier = arrival - given_back * interval
  if earlier > now_us then
    call('set', key, format('%d', earlier), 'px', format('%d', ceil((earlier - now_us) / 1000)))
  else
    call('unlink', key)
  end
end
