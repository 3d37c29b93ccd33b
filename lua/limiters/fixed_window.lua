-- A counter that starts anew with each window.
--
-- KEYS    counter, length of the window (only where the rule was changed)
-- numbers 1  limit
--         2  window in ms
--         3  ms of the unit whose start begins a window, 0 where the first request does
--         4  length in ms that windows had before the rule was changed, 0 where it was not
-- Writes  the counter, whose time to live is what is left of the window. Where the rule was changed, the length that
--         the window has now, for as long: so that each window is moved once, whoever moves it

algorithms.fixed_window = function(keys, numbers, now)
  local counter, length = keys[1], keys[2]
  local limit, window, unit, length_before = numbers[1], numbers[2], numbers[3], numbers[4]

  local text = redis.call('get', counter)
  local count, left = 0, nil -- left: ms to live, nil where there is no window
  if text then
    count = whole(text)
    if not count then
      return bad_state('the counter is not a whole number')
    end
    left = redis.call('pttl', counter)
  end
  -- In the last millisecond Redis still has the key, but the window is over.
  local is_new = not text or left == 0
  if is_new then
    count, left = 0, nil
  end
  local new_left = window
  if unit > 0 then
    new_left = now - now % unit + window - now
  end
  local expire = false
  if left == -1 then
    -- A peer was interrupted between counting and expiring: nobody would ever end this window.
    left, expire = new_left, true
  elseif left and length_before > 0 then
    local was = tonumber(redis.call('get', length)) or length_before
    if was ~= window then
      left, expire = left + window - was, true
      if left <= 0 then
        is_new, count = true, 0
      end
    end
  end
  if is_new then
    left = new_left
  end

  local taken = 0

  return {
    limit = limit,
    ask = function(cost)
      -- A counter that a peer took below 0 gives no more than the limit.
      local remaining = math.min(limit - count - taken, limit)
      local granted = cost <= remaining
      return granted, math.max(granted and remaining - cost or remaining, 0), left, left, 0
    end,
    charge = function(cost)
      taken = taken + cost
    end,
    deny = function() end, -- the window's end may have to be put right
    write = function()
      if is_new then
        redis.call('set', counter, digits(taken), 'px', digits(left))
      elseif taken > 0 then
        redis.call('incrby', counter, digits(taken))
      end
      if expire and not is_new then
        redis.call('pexpire', counter, digits(left))
      end
      if length_before > 0 and (expire or is_new) then
        redis.call('set', length, digits(window), 'px', digits(left))
      end
    end,
  }
end
