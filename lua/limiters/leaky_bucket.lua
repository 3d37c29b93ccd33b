-- Requests that flow out at a constant pace: so many a unit of time. What does not fit into the bucket is refused.
--
-- KEYS    requests in the bucket, time of the last outflow
-- numbers 1  capacity
--         2  quantity that flows out in a unit
--         3  unit in ms
--         4  ms of the natural unit at whose start a first unit begins, 0 where it begins with the first request
-- Writes  at a grant the requests, and the time where it moved, each with the time to live that a full bucket takes to
--         flow out

algorithms.leaky_bucket = function(keys, numbers, now)
  local bucket, started = keys[1], keys[2]
  local capacity, quantity, unit, natural_unit = numbers[1], numbers[2], numbers[3], numbers[4]
  local limit = capacity + quantity

  local value_text, start_text = redis.call('get', bucket), redis.call('get', started)
  local value, start = whole(value_text or '0'), whole(start_text or digits(now))
  if not (value and start) then
    return bad_state('the requests or the time of the last outflow are not a whole number')
  end
  local is_first = not start_text
  local start_moved = is_first
  if is_first then
    value = 0
    if natural_unit > 0 then
      start = now - now % natural_unit
    end
  else
    value = math.max(value, 0)
    local units = math.max(math.floor((now - start) / unit), 0)
    if units >= math.ceil(value / quantity) then
      value = 0
    else
      value = value - units * quantity
    end
    start, start_moved = start + units * unit, units > 0
  end

  -- Milliseconds until so many requests have flowed out.
  local function until_out(count)
    return math.max(math.min(math.ceil(count / quantity) * unit, LONGEST) + start - now, 0)
  end

  -- Milliseconds that a request waits which fills the bucket up to this.
  local function delay(filled)
    local batch = math.ceil(filled / quantity) - 1
    if is_first or batch <= 0 then
      return 0
    end
    return (batch - 1) * unit + start + unit - now
  end

  return {
    limit = limit,
    ask = function(cost)
      local filled = value + cost
      if filled > limit then
        return false, math.max(limit - value, 0), until_out(filled - limit), until_out(value), 0
      end
      return true, limit - filled, 0, until_out(filled), delay(filled)
    end,
    charge = function(cost)
      value, is_first = value + cost, false
    end,
    write = function()
      local time_to_live = digits((math.ceil(capacity / quantity) + 1) * unit)
      redis.call('set', bucket, digits(value), 'px', time_to_live)
      if start_moved then
        redis.call('set', started, digits(start), 'px', time_to_live)
      end
    end,
  }
end
