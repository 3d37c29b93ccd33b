-- A counter for each window of time; every window starts at 0.
--
-- KEYS    counter
-- numbers 1  limit
--         2  window in ms
--         3  the unit of the clock in ms at whose start a window begins, 0 if it begins with the
--            first request; -1 for windows of a month of the calendar, -12 of a year
--         4  by how many ms the clock of the calendar's windows is ahead of UTC; for weeks, which
--            begin on Mondays, three days more. Left out for windows that are not the calendar's
-- Returns 4  count, 0 in a new window
--         5  ms until the window ends, -1 for a new one
-- Writes  the counter, with the ms until the window ends as its time to live: later callers leave
--         this end as it is, whatever their windows are

--! include shared/limits.lua
--! include shared/policy.lua
--! include shared/whole.lua
--! include shared/one_target.lua

--! part read
local counter = KEYS[1]
local limit, window, unit = unpack_numbers('<ddd', numbers)
local offset = #numbers > 24 and unpack_numbers('<d', numbers, 25) or 0 -- the fourth double

local text = call('get', counter)
local count, until_end = 0, 0
local is_new, sets_ttl = true, false
if text then
  count, until_end = whole(text), call('pttl', counter)
  if not count then
    return redis.error_reply('BADSTATE the counter is not an integer')
  end
  -- In its last millisecond the key still exists, but the window has ended.
  is_new = until_end == 0
end
if is_new then
  count = 0
end
if is_new or until_end == -1 then
  -- A peer that stopped between INCR and PEXPIRE leaves a counter that never expires.
  until_end, sets_ttl = unit > 0 and window - (now + offset) % unit or window, true
  if unit < 0 then
    -- Finds the year from the days since 1970-01-01: the first one tried is at most two too late.
    local DAY = 86400000
    local days = floor((now + offset) / DAY)
    local year = 1972 + floor(days / 365.2425)
    local first_day -- of the year
    repeat
      year = year - 1
      local before = year - 1 -- of the years up to this one, 477 until 1970 had a day more
      local leap_days = floor(before / 4) - floor(before / 100) + floor(before / 400) - 477
      first_day = 365 * (year - 1970) + leap_days
    until first_day <= days
    local leap = (year % 4 == 0 and year % 100 ~= 0 or year % 400 == 0) and 1 or 0
    local days_past = days - first_day -- the start of the year; in the end, that of the window
    if unit == -12 then
      days_past = days_past - 365 - leap
    else
      local month = 0
      repeat
        month = month + 1
        days_past = days_past - (month == 2 and 28 + leap or 30 + (month + floor(month / 8)) % 2)
      until days_past < 0
    end
    until_end = -days_past * DAY - (now + offset) % DAY
  end
end
local room = limit - count
--! end

--! include shared/grant_runs.lua

--! part state
local state = pack('<ddddd', server_now, now, 0, count, is_new and -1 or until_end)
--! end

--! part write
if taken > 0 and is_new then
  call('set', counter, format('%d', taken), 'px', format('%d', until_end))
elseif taken > 0 then
  call('incrby', counter, taken == 1 and '1' or format('%d', taken))
end
if sets_ttl and not is_new and (taken > 0 or denied_cost) then
  -- Also after a denial: nothing else would end this window.
  call('pexpire', counter, format('%d', until_end))
end
return state
--! end
