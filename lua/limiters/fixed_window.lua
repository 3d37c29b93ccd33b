-- A counter that starts anew with each window.
--
-- KEYS    counter, length of the window (only where the rule was changed)
-- numbers 1  limit
--         2  window in ms
--         3  ms of the unit whose start begins a window, 0 where the first request does
--         4  length in ms that windows had before the rule was changed, 0 where it was not
-- Returns 4  count, 0 in a new window
--         5  ms until the window ends, -1 for a new one
-- Writes  the counter, whose time to live is what is left of the window. Where the rule was changed, the length that
--         the window has now, for as long: so that each window is moved once, whoever moves it

local counter, length = KEYS[1], KEYS[2]
local limit, window, unit, length_before = unpack_numbers('<dddd', numbers)

local text = call('get', counter)
local count, left, is_new, expire = 0, 0, true, false
if text then
  count, left = whole(text), call('pttl', counter)
  if not count then
    return redis.error_reply('BADSTATE the counter is not a whole number')
  end
  -- In the last millisecond Redis still has the key, but the window is over.
  is_new = left == 0
  if left > 0 and length_before > 0 then
    local was = tonumber(call('get', length)) or length_before
    if was ~= window then
      left, expire = left + window - was, true
      is_new = left <= 0
    end
  end
end
if is_new then
  count = 0
end
if is_new or left == -1 and not expire then
  -- One without an end is of a peer that was interrupted between counting and expiring: nobody would ever end it.
  left, expire = unit > 0 and window - now % unit or window, true
end
local room = limit - count

-- grant_runs.lua

if taken > 0 and is_new then
  call('set', counter, format('%d', taken), 'px', format('%d', left))
elseif taken > 0 then
  call('incrby', counter, format('%d', taken))
end
if expire and (taken > 0 or denied_cost) then
  -- A denied request puts the window's end right too.
  if not is_new then
    call('pexpire', counter, format('%d', left))
  end
  if length_before > 0 then
    call('set', length, format('%d', window), 'px', format('%d', left))
  end
end
return pack('<ddddd', server_now, now, 0, count, is_new and -1 or left)
