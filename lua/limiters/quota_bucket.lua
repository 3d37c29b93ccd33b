-- Tokens that come in by a quota for each period; a request takes its cost out of them.
--
-- KEYS    bucket
-- numbers 1  capacity
--         2  quota, in tokens a period
--         3  period in s
-- Writes  at each grant and each denial all fields: capacity, quota, period; remain; timestamp in s, moved by the time that
--         the tokens which came in took; where that is no whole number of s, the rest in timestamp_fraction, in parts of
--         1 / quota s. And the time to live, twice what an empty bucket takes to fill, in whole s: a peer that sets none
--         may have taken tokens meanwhile

algorithms.quota_bucket = function(keys, numbers, now)
  local bucket = keys[1]
  local capacity, quota, period = numbers[1], numbers[2], numbers[3]
  local second = math.floor(now / 1000)

  local fields = redis.call('hmget', bucket, 'remain', 'timestamp', 'timestamp_fraction')
  local remain, timestamp, fraction = capacity, second, 0
  if not (fields[1] or fields[2]) and redis.call('exists', bucket) == 1 then
    return bad_state('the hash is no bucket of a quota')
  end
  if fields[1] and fields[2] then
    remain, timestamp, fraction = finite(fields[1]), finite(fields[2]), finite(fields[3] or '0')
    if not (remain and timestamp and fraction) then
      return bad_state('a field of the bucket is not a number')
    end
    remain = math.max(math.min(remain, capacity), 0)
    fraction = math.min(math.max(fraction, 0), quota - 1)
    local elapsed = math.max(second - timestamp, 0)
    if elapsed >= math.ceil(((capacity - remain) * period + fraction) / quota) then
      remain, timestamp, fraction = capacity, second, 0
    else
      -- Only whole tokens come in, and the time of the rest goes on counting: in the long run the quota is exact.
      local came_in = math.max(math.floor((elapsed * quota - fraction) / period), 0)
      local took = fraction + came_in * period
      remain, timestamp, fraction = remain + came_in, timestamp + math.floor(took / quota), took % quota
    end
  end

  -- Milliseconds until there are so many tokens.
  local function until_there_are(wanted)
    local seconds = math.ceil(((wanted - remain) * period + fraction) / quota)
    return math.max((seconds + timestamp) * 1000 - now, 0)
  end

  return {
    limit = capacity,
    ask = function(cost)
      return ask_of_tokens(capacity, remain, cost, until_there_are)
    end,
    charge = function(cost)
      remain = remain - cost
    end,
    deny = function() end, -- a peer reads the numbers that were asked by
    write = function()
      redis.call(
        'hset', bucket, 'capacity', digits(capacity), 'remain', digits(remain), 'period', digits(period),
        'quota', digits(quota), 'timestamp', digits(timestamp)
      )
      if fraction > 0 then
        redis.call('hset', bucket, 'timestamp_fraction', digits(fraction))
      elseif fields[3] then
        redis.call('hdel', bucket, 'timestamp_fraction')
      end
      redis.call('pexpire', bucket, digits(2 * math.ceil(capacity * period / quota) * 1000))
    end,
  }
end
