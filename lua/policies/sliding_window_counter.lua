-- A counter for each period of the window, which slides by one period at a time.
--
-- KEYS    start of the first period; the lengths of windows and periods; the prefix of the counters' names,
--         which is no key. The names follow from the stored start, so they cannot be declared: they share the hash tag
--         of these
-- numbers 1  limit
--         2  window in ms, a multiple of the period
--         3  period in ms
--         4  the unit of the clock in ms at whose start the first period begins, 0 if it begins with the first request
-- Returns 4  start of the first period in ms
--         5… of each counter that is not 0: the last ms of its period, and its count. If all requests were granted and
--            something is left, one pair: the last ms of the newest period, and the sum of all counts
-- Writes  the counter of the current period. With the first request of a period also the start, whose time to live is two
--         windows, or longer by as much as a first period is still ahead, the lengths, with the same, and the counter's time
--         to live, 16 ms more. The lengths also as below. As shared/life.lua says, a time to live is never shortened. The
--         start's shows whether the counters, whose own are not read, live as long as this window needs: with the first
--         request of the newest period it was two windows. If it was less, all that were found are extended
--
-- The lengths are little-endian doubles in one string, by which clients with other numbers count each other's counters: one
-- of another length counts as long as its last ms is in the window. If all clients have one window and period, it is these
-- two, as in numbers 2 and 3. Else a client that finds others writes, once in each of its periods, whatever it decides:
-- its window, its period, the last ms of its current period; and these three of each of the others behind it, up to 15, as
-- long as their last ms is less than three times the longest of the windows that are kept before now. So long may a counter
-- live: one that is about to leave that window is extended by two of them.

--! include shared/limits.lua
--! include shared/policy.lua
--! include shared/whole.lua
--! include shared/one_target.lua

--! part read
local start_key, lengths_key, counters = KEYS[1], KEYS[2], KEYS[3]
local limit, window, period, unit = unpack_numbers('<dddd', numbers)

local start_text = call('get', start_key)
local start = unit > 0 and now - now % unit or now
local is_started = false
if start_text then
  local stored = whole(start_text)
  if not stored or stored > LARGEST / 2 or stored < -LARGEST / 2 then
    return redis.error_reply('BADSTATE the start of the first period is not a time')
  end
  -- Only a clock that was wrong can have written a start that is further ahead than the window.
  if stored <= now + window then
    start, is_started = stored, true
  end
end

-- The last millisecond of the current period. A time on the border of two belongs to the earlier one.
local current = start + max(ceil((now - start) / period), 1) * period - 1

-- The lengths, and the counters within the window, oldest first.
local current_place, names = window / period + 1, { lengths_key }
for place = 2, current_place do
  names[place] = counters .. format('%d', current - window + (place - 1) * period)
end
local stored, count = call('mget', unpack(names)), current_place
local lengths, own_lengths, other_lengths, ends = stored[1], string.sub(numbers, 9, 24), '', nil
local is_known = lengths == own_lengths -- whether they say that such clients may have a counter of the current period

if lengths and not is_known then
  local is_one, others = #lengths == 16, {}
  if not is_one and (#lengths % 24 ~= 0 or #lengths == 0 or #lengths > 24 * MOST_LENGTHS) then
    return redis.error_reply('BADSTATE the lengths of the periods are not numbers')
  end
  for at = 1, #lengths, 24 do
    local its_window, its_period = unpack_numbers('<dd', lengths, at)
    if not (its_period >= 1 and its_window >= its_period and its_window <= LARGEST / 8 and its_window % 1 == 0
        and its_period % 1 == 0) then
      return redis.error_reply('BADSTATE the lengths of the periods are not whole ms')
    end
    local last = is_one and start + max(ceil((now - start) / its_period), 1) * its_period - 1
      or unpack_numbers('<d', lengths, at + 16)
    if not (last >= -LARGEST and last <= LARGEST and last % 1 == 0) then
      return redis.error_reply('BADSTATE the end of the newest period of a length is not a time')
    end
    -- No period ends later, but by a clock that was wrong.
    local latest = now + 2 * its_window
    if its_window == window and its_period == period then
      is_known = last >= current and last <= latest
    elseif #others < MOST_LENGTHS - 1 and last <= latest then
      others[#others + 1] = { its_window, its_period, last }
    end
  end

  -- Those that may have counters that live, for as long as the longest window needs: it may end with a shorter period.
  repeat
    local all, longest = others, window
    for _, one in ipairs(all) do
      longest = max(longest, one[1])
    end
    others = {}
    for _, one in ipairs(all) do
      if one[3] > now - 3 * longest then
        others[#others + 1] = one
      end
    end
  until #others == #all

  -- How many counters they may have in this window.
  local number = 0
  for _, one in ipairs(others) do
    number = number + (one[2] == period and 0 or max(ceil((one[3] - current + window) / one[2]), 0))
    other_lengths = other_lengths .. pack('<ddd', one[1], one[2], one[3])
  end
  if #others > 0 then
    own_lengths = pack('<ddd', window, period, current) .. other_lengths
  end

  -- All of these counters, or the newest of each length. Those of the same name as one of this length were read before.
  ends = {}
  local most, is_read, more = number <= most_others and number or floor(most_others / #others), {}, {}
  for _, one in ipairs(others) do
    local last, oldest = one[3], max(current - window, one[3] - most * one[2])
    while last > oldest and one[2] ~= period do
      if not is_read[last] and (last > current or (current - last) % period ~= 0) then
        is_read[last] = true
        count = count + 1
        ends[count], names[count] = last, counters .. format('%d', last)
        more[#more + 1] = names[count]
      end
      last = last - one[2]
    end
  end
  if #more > 0 then
    for place, text in ipairs(call('mget', unpack(more))) do
      stored[current_place + place] = text
    end
  end
end

local counts, used, found, newest, last_found = {}, 0, lengths and 1 or 0, nil, nil
for place = 2, count do
  local text = stored[place]
  if text then
    local number = whole(text)
    if not number then
      return redis.error_reply('BADSTATE a counter is not an integer')
    end
    found = found + 1
    local last = place <= current_place and current - window + (place - 1) * period or ends[place]
    last_found = max(last_found or last, last)
    if number ~= 0 then
      counts[#counts + 1] = last
      counts[#counts + 1] = number
      used = used + number
      newest = max(newest or last, last)
    end
  end
end
local is_first = not (is_started and stored[current_place]) -- of its period

-- MGET returns nil for keys of another type.
if (is_first or not is_known) and found < count and call('exists', unpack(names)) ~= found then
  return redis.error_reply('BADSTATE the lengths of the periods or a counter is not a string')
end
local room = limit - used
--! end

--! include shared/grant_runs.lua

--! part state
local state
if denied_cost or taken >= room or used <= 0 then
  state = pack('<dddd' .. string.rep('d', #counts), server_now, now, 0, start, unpack(counts))
else
  state = pack('<dddddd', server_now, now, 0, start, newest, used)
end
--! end

--! part write
local from_end = 2 * window - min(floor(1.5 * period), window) - now -- from a period's end to that of its needed life, in ms from now
local needed = 0
if last_found then
  last_found = min(last_found, current)
  needed = from_end + last_found + (current - last_found) % period -- the end of the period of this length that holds it
end
local lasting, is_there, is_renewed, extended = start_key, start_text, false, needed
--! include shared/life.lua
if is_extended then
  for place = 1, count do
    if stored[place] then
      local lasting, needed = names[place], place == 1 and needed or needed + 16
      local extended = needed
      --! include shared/life.lua
    end
  end
end
local time_to_live = max(left, 2 * window)
if taken > 0 then
  local counter = names[current_place]
  if is_first then
    time_to_live = max(time_to_live, current + from_end)
    call('set', counter, format('%d', (tonumber(stored[current_place]) or 0) + taken), 'px', format('%d', time_to_live + 16))
    call('set', start_key, format('%d', start), 'px', format('%d', time_to_live))
  else
    call('incrby', counter, format('%d', taken))
  end
end
if taken > 0 and (is_first or not lengths) or lengths and not is_known then
  call('set', lengths_key, own_lengths, 'px', format('%d', time_to_live))
end
return state
--! end
