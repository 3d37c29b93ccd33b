-- A counter for each period of the window, which slides by one period at a time.
--
-- KEYS    start of the first period; the lengths of windows and periods; the prefix of the
--         counters' names, which is no key. The names follow from the stored start, so they cannot
--         be declared: they share the hash tag of these
-- numbers 1  limit
--         2  window in ms, a multiple of the period
--         3  period in ms
--         4  the unit of the clock in ms at whose start the first period begins, 0 if it begins
--            with the first request
-- Returns 4  start of the first period in ms
--         5… of each counter that is not 0: the last ms of its period, and its count. If all
--            requests were granted and something is left, one pair: the last ms of the newest
--            period, and the sum of all counts
-- Writes  the counter of the current period. With the first request of a period also the start and
--         the lengths, which live for two windows, or longer by as much as a first period is still
--         ahead, and the counter's time to live, 16 ms more. The lengths also as below.
--         As shared/life.lua says, no time to live is shortened. The start's shows whether the
--         counters, whose own are not read, live as long as this window needs: with the first
--         request of the newest period it was two windows. If it was less, all counters that were
--         found are extended
--
-- By the lengths, clients with other numbers count each other's counters: a counter of another
-- length counts as long as its last ms is in the window. They are little-endian doubles in one
-- string: if all clients have one window and period, these two. Else a client that finds others
-- writes, once in each of its periods, whatever it decides: its window, its period, the last ms of
-- its current period; then these three of each other length, up to 15, until that last ms is three
-- times the longest of these windows ago. So long may a counter live: if it is about to leave that
-- window, it is extended by two windows.

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
  -- Only a wrong clock can have written a start that is further ahead than the window.
  if stored <= now + window then
    start, is_started = stored, true
  end
end

-- The last ms of the current period. A time on the border of two periods is in the earlier one.
local current_end = start + max(ceil((now - start) / period), 1) * period - 1

-- The lengths, and the counters within the window, the oldest first.
local current_place = window / period + 1
local read_keys = { lengths_key }
for place = 2, current_place do
  read_keys[place] = counters .. format('%d', current_end - window + (place - 1) * period)
end
local texts, key_count = call('mget', unpack(read_keys)), current_place
local lengths, own_lengths, other_lengths = texts[1], string.sub(numbers, 9, 24), ''
local other_ends -- by place in the keys, the last ms of the counters of other lengths
-- Whether the lengths say that clients of this length may have a counter of the current period.
local is_known = lengths == own_lengths

if lengths and not is_known then
  local is_one, others = #lengths == 16, {}
  if not is_one and (#lengths % 24 ~= 0 or #lengths == 0 or #lengths > 24 * MOST_LENGTHS) then
    return redis.error_reply('BADSTATE the lengths of the periods are not numbers')
  end
  for at = 1, #lengths, 24 do
    local its_window, its_period = unpack_numbers('<dd', lengths, at)
    if not (its_period >= 1 and its_window >= its_period and its_window <= LARGEST / 8
        and its_window % 1 == 0 and its_period % 1 == 0) then
      return redis.error_reply('BADSTATE the lengths of the periods are not whole ms')
    end
    local its_end = is_one and start + max(ceil((now - start) / its_period), 1) * its_period - 1
      or unpack_numbers('<d', lengths, at + 16)
    if not (its_end >= -LARGEST and its_end <= LARGEST and its_end % 1 == 0) then
      return redis.error_reply('BADSTATE the end of the newest period of a length is not a time')
    end
    -- Only a wrong clock can have written a later end.
    local latest_end = now + 2 * its_window
    if its_window == window and its_period == period then
      is_known = its_end >= current_end and its_end <= latest_end
    elseif #others < MOST_LENGTHS - 1 and its_end <= latest_end then
      others[#others + 1] = { its_window, its_period, its_end }
    end
  end

  -- Keeps those that may have live counters. Without one of them the longest window may be shorter.
  repeat
    local all, longest = others, window
    for _, other in ipairs(all) do
      longest = max(longest, other[1])
    end
    others = {}
    for _, other in ipairs(all) do
      if other[3] > now - 3 * longest then
        others[#others + 1] = other
      end
    end
  until #others == #all

  -- How many counters they may have in this window.
  local number = 0
  for _, other in ipairs(others) do
    local its_window, its_period, its_end = unpack(other)
    number = number
      + (its_period == period and 0 or max(ceil((its_end - current_end + window) / its_period), 0))
    other_lengths = other_lengths .. pack('<ddd', its_window, its_period, its_end)
  end
  if #others > 0 then
    own_lengths = pack('<ddd', window, period, current_end) .. other_lengths
  end

  -- Reads all of these counters, or the newest of each length. A counter that has the same name as
  -- one of this length was read before.
  other_ends = {}
  local most = number <= most_others and number or floor(most_others / #others) -- of each length
  local is_read, other_keys = {}, {}
  for _, other in ipairs(others) do
    local _, its_period, last = unpack(other)
    local oldest = max(current_end - window, last - most * its_period)
    while last > oldest and its_period ~= period do
      if not is_read[last] and (last > current_end or (current_end - last) % period ~= 0) then
        is_read[last] = true
        key_count = key_count + 1
        other_ends[key_count], read_keys[key_count] = last, counters .. format('%d', last)
        other_keys[#other_keys + 1] = read_keys[key_count]
      end
      last = last - its_period
    end
  end
  if #other_keys > 0 then
    for place, text in ipairs(call('mget', unpack(other_keys))) do
      texts[current_place + place] = text
    end
  end
end

local ends_and_counts = {} -- of the counters that are not 0
local used, found = 0, lengths and 1 or 0
local newest_end -- of the counters that are not 0
local last_found -- the end of the newest counter that was found
for place = 2, key_count do
  local text = texts[place]
  if text then
    local number = whole(text)
    if not number then
      return redis.error_reply('BADSTATE a counter is not an integer')
    end
    found = found + 1
    local last = place <= current_place and current_end - window + (place - 1) * period
      or other_ends[place]
    last_found = max(last_found or last, last)
    if number ~= 0 then
      ends_and_counts[#ends_and_counts + 1] = last
      ends_and_counts[#ends_and_counts + 1] = number
      used = used + number
      newest_end = max(newest_end or last, last)
    end
  end
end
local is_first = not (is_started and texts[current_place]) -- request of its period

-- MGET returns nil for keys of another type.
if (is_first or not is_known) and found < key_count
  and call('exists', unpack(read_keys)) ~= found then
  return redis.error_reply('BADSTATE the lengths of the periods or a counter is not a string')
end
local room = limit - used
--! end

--! include shared/grant_runs.lua

--! part state
local state
if denied_cost or taken >= room or used <= 0 then
  local form = '<dddd' .. string.rep('d', #ends_and_counts)
  state = pack(form, server_now, now, 0, start, unpack(ends_and_counts))
else
  state = pack('<dddddd', server_now, now, 0, start, newest_end, used)
end
--! end

--! part write
local COUNTERS_OUTLIVE = 16 -- ms that the counters live longer than the start
-- The end of a period plus this is the ms from now for which its counter must live.
local life_from_end = 2 * window - min(floor(1.5 * period), window) - now
local needed_ttl = 0
if last_found then
  last_found = min(last_found, current_end)
  -- From the end of the period of this length that holds it.
  needed_ttl = life_from_end + last_found + (current_end - last_found) % period
end
local life_key, key_exists, gives_ttl = start_key, start_text, false
local extended_ttl = needed_ttl
--! include shared/life.lua
if is_extended then
  for place = 1, key_count do
    if texts[place] then
      local life_key = read_keys[place]
      local needed_ttl = place == 1 and needed_ttl or needed_ttl + COUNTERS_OUTLIVE
      local extended_ttl = needed_ttl
      --! include shared/life.lua
    end
  end
end
local time_to_live = max(ttl_left, 2 * window)
if taken > 0 then
  local counter = read_keys[current_place]
  if is_first then
    time_to_live = max(time_to_live, current_end + life_from_end)
    local count = (tonumber(texts[current_place]) or 0) + taken
    local counter_ttl = time_to_live + COUNTERS_OUTLIVE
    call('set', counter, format('%d', count), 'px', format('%d', counter_ttl))
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
