-- A counter for each period of the window, which slides by one period at a time.
--
-- KEYS    start of the first period; the prefix of the counters' names, which is no key. The names follow from the stored
--         start, so they cannot be declared: they share the hash tag of these two
-- numbers 1  limit
--         2  window in ms, a multiple of the period
--         3  period in ms
--         4  the natural unit in ms at whose start the first period begins, 0 if it begins with the first request
--         5  window in ms before the period was changed, 0 if it was not
--         6  period in ms before
-- Returns 4  start of the first period in ms
--         5… of each counter that is not 0: the last ms of its period, and its count. If all requests were granted, one
--            pair: the last ms of the newest period, and the sum of all counts
-- Writes  the counter of the current period. With the first request of a period also the start, whose time to live is two
--         windows, and the counter's time to live, 16 ms more. As shared/life.lua says, a time to live is never shortened.
--         The start's shows whether the counters, whose own are not read, live as long as this window needs: with the first
--         request of the newest period it was two windows. If it was less, all that were found are extended

--! include shared/limits.lua
--! include shared/policy.lua
--! include shared/whole.lua
--! include shared/one_target.lua

--! part read
local start_key, counters = KEYS[1], KEYS[2]
local limit, window, period, unit, window_before, period_before = unpack_numbers('<dddddd', numbers)

local text = call('get', start_key)
local start = unit > 0 and now - now % unit or now
if text then
  start = whole(text)
  if not start or start > LARGEST / 2 or start < -LARGEST / 2 then
    return redis.error_reply('BADSTATE the start of the first period is not a time')
  end
end

-- The last millisecond of the current period. A time on the border of two belongs to the earlier one.
local current = start + max(ceil((now - start) / period), 1) * period - 1

-- The counters within the window, oldest first.
local periods, before, names = window / period, 0, {}
for place = 1, periods do
  names[place] = counters .. format('%d', current - window + place * period)
end
local ends_before
if period_before > 0 then
  -- Counters of periods of the length before go on counting. They expire after two windows of that policy.
  ends_before = {}
  local oldest = max(current - window, now - 2 * window_before - 17)
  local last = start + max(ceil((now - start) / period_before), 1) * period_before - 1
  while last > oldest do
    if last > current or (current - last) % period ~= 0 then
      before = before + 1
      ends_before[before] = last
      names[periods + before] = counters .. format('%d', last)
    end
    last = last - period_before
  end
end

local stored = call('mget', unpack(names))
local counts, used, found, newest, last_found = {}, 0, 0, nil, nil
for place = 1, periods + before do
  local text = stored[place]
  if text then
    local count = whole(text)
    if not count then
      return redis.error_reply('BADSTATE a counter is not an integer')
    end
    found = found + 1
    local last = place <= periods and current - window + place * period or ends_before[place - periods]
    last_found = max(last_found or last, last)
    if count ~= 0 then
      counts[#counts + 1] = last
      counts[#counts + 1] = count
      used = used + count
      newest = max(newest or last, last)
    end
  end
end
local is_first = not (text and stored[periods]) -- of its period

-- MGET returns nil for keys of another type.
if is_first and found < #names and call('exists', unpack(names)) ~= found then
  return redis.error_reply('BADSTATE a counter is not a string')
end
local room = limit - used
--! end

--! include shared/grant_runs.lua

--! part write
local needed = last_found and min(last_found, current) - min(floor(1.5 * period), window) + 2 * window - now or 0
local lasting, is_there, is_renewed = start_key, text, false
--! include shared/life.lua
if is_extended then
  for place = 1, periods + before do
    if stored[place] then
      local lasting, needed = names[place], needed + 16
      --! include shared/life.lua
    end
  end
end
if taken > 0 then
  local counter = names[periods]
  if is_first then
    local time_to_live = max(left, 2 * window)
    call('set', counter, format('%d', (tonumber(stored[periods]) or 0) + taken), 'px', format('%d', time_to_live + 16))
    call('set', start_key, format('%d', start), 'px', format('%d', time_to_live))
  else
    call('incrby', counter, format('%d', taken))
  end
end
if denied_cost or used <= 0 then
  return pack('<dddd' .. string.rep('d', #counts), server_now, now, 0, start, unpack(counts))
end
return pack('<dddddd', server_now, now, 0, start, newest, used)
--! end
