-- A window made of periods, with a counter for each: it slides by a period at a time.
--
-- KEYS    start of the first period; what the counters' names begin with, itself no key. The names follow from the start
--         that is stored, so they cannot be declared: they have the hash tag of these two
-- numbers 1  limit
--         2  window in ms, a multiple of
--         3  period in ms
--         4  ms of the unit whose start the first period begins at, 0 where it begins with the first request
--         5  window in ms before the periods' length was changed, 0 where it was not
--         6  period in ms before
-- Writes  the counter of the current period. With the first request in a period, the start and its time to live, two
--         windows, and the counter's, 16 ms more

algorithms.sliding_window = function(keys, numbers, now)
  local start_key, counters = keys[1], keys[2]
  local limit, window, period, unit = numbers[1], numbers[2], numbers[3], numbers[4]
  local window_before, period_before = numbers[5], numbers[6]

  local text = redis.call('get', start_key)
  local start = unit > 0 and now - now % unit or now
  if text then
    start = whole(text)
    if not start or math.abs(start) > LARGEST / 2 then
      return bad_state('the start of the first period is not a time')
    end
  end

  -- The last millisecond of the period that now is in. A time between two belongs to the one that ends there.
  local function current_end(period)
    return start + math.max(math.ceil((now - start) / period), 1) * period - 1
  end

  -- The ends of the periods that the window holds, the oldest first.
  local current, ends = current_end(period), {}
  for last = current - window + period, current, period do
    ends[#ends + 1] = last
  end
  local current_place = #ends
  if period_before > 0 then
    -- What was counted in periods of another length counts on. Its keys have gone after two windows of that rule.
    local oldest = math.max(current - window, now - 2 * window_before - 17)
    local last = current_end(period_before)
    while last > oldest do
      if last > current or (current - last) % period ~= 0 then
        ends[#ends + 1] = last
      end
      last = last - period_before
    end
  end

  local names = {}
  for i, last in ipairs(ends) do
    names[i] = counters .. digits(last)
  end
  local used, held, is_first, newest = 0, {}, not text, nil
  local current_counter
  local found = 0
  for i, stored in ipairs(redis.call('mget', unpack(names))) do
    local count = whole(stored or '0')
    if not count then
      return bad_state('a counter is not a whole number')
    end
    found = found + (stored and 1 or 0)
    if stored or i == current_place then
      held[#held + 1] = { last = ends[i], count = count }
      used = used + count
    end
    if count ~= 0 then
      newest = math.max(newest or ends[i], ends[i])
    end
    if i == current_place then
      current_counter = held[#held]
      is_first = is_first or not stored -- of its period
    end
  end

  -- MGET passes over keys of another type.
  if found < #names and redis.call('exists', unpack(names)) ~= found then
    return bad_state('a counter is no string')
  end

  local taken = 0

  -- Milliseconds until the window no longer holds the period that ends then: until the first one begins that is current
  -- without it.
  local function until_out(last)
    local current_then = math.ceil((last + window + 1 - start) / period)
    return start + (current_then - 1) * period + 1 - now
  end

  return {
    limit = limit,
    ask = function(cost)
      -- Counters that a peer took below 0 give no more than the limit.
      local remaining = math.min(limit - used, limit)
      if cost <= remaining then
        return true, remaining - cost, 0, until_out(math.max(newest or current, current)), 0
      end
      table.sort(held, function(a, b)
        return a.last < b.last
      end)
      local left, retry_after = used, 0
      for _, counter in ipairs(held) do
        left = left - counter.count
        retry_after = until_out(counter.last)
        if cost <= limit - left then
          break
        end
      end
      return false, math.max(remaining, 0), retry_after, until_out(newest or current), 0
    end,
    charge = function(cost)
      taken = taken + cost
      used = used + cost
      current_counter.count = current_counter.count + cost
      newest = math.max(newest or current, current)
    end,
    write = function()
      local counter = counters .. digits(current)
      if is_first then
        redis.call('set', counter, digits(current_counter.count), 'px', digits(2 * window + 16))
        redis.call('set', start_key, digits(start), 'px', digits(2 * window))
      else
        redis.call('incrby', counter, digits(taken))
      end
    end,
  }
end
