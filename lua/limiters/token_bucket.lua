-- Tokens that come in at a steady rate; a request takes its cost out of them.
--
-- KEYS    bucket
-- numbers 1  capacity
--         2  rate, in tokens a second
-- Writes  where tokens were taken, the bucket's fields and its time to live, twice what an empty bucket takes to fill:
--         tokens; last_refill_timestamp in ms, moved by the time that the tokens which came in took; where that is no
--         whole number of ms, the rest in last_refill_fraction, in parts of 1 / rate ms

algorithms.token_bucket = function(keys, numbers, now)
  local bucket, capacity, rate = keys[1], numbers[1], numbers[2]

  local fields = redis.call('hmget', bucket, 'tokens', 'last_refill_timestamp', 'last_refill_fraction')
  local tokens, refilled_at, fraction = capacity, now, 0
  if not (fields[1] or fields[2]) and redis.call('exists', bucket) == 1 then
    return bad_state('the hash is no bucket of tokens')
  end
  if fields[1] and fields[2] then
    tokens, refilled_at, fraction = finite(fields[1]), finite(fields[2]), finite(fields[3] or '0')
    if not (tokens and refilled_at and fraction) then
      return bad_state('a field of the bucket is not a number')
    end
    tokens = math.min(tokens, capacity)
    fraction = math.min(math.max(fraction, 0), rate - 1)
    local elapsed = math.max(now - refilled_at, 0)
    if elapsed >= math.ceil(((capacity - tokens) * 1000 + fraction) / rate) then
      tokens, refilled_at, fraction = capacity, now, 0
    else
      -- Only whole tokens come in, and the time of the rest goes on counting: in the long run the rate is exact.
      local came_in = math.max(math.floor((elapsed * rate - fraction) / 1000), 0)
      local took = fraction + came_in * 1000
      tokens, refilled_at, fraction = tokens + came_in, refilled_at + math.floor(took / rate), took % rate
    end
  end

  -- Milliseconds until there are so many tokens.
  local function until_there_are(wanted)
    return math.max(math.ceil(((wanted - tokens) * 1000 + fraction) / rate) + refilled_at - now, 0)
  end

  return {
    limit = capacity,
    ask = function(cost)
      return ask_of_tokens(capacity, tokens, cost, until_there_are)
    end,
    charge = function(cost)
      tokens = tokens - cost
    end,
    write = function()
      redis.call('hset', bucket, 'tokens', digits(tokens), 'last_refill_timestamp', digits(refilled_at))
      if fraction > 0 then
        redis.call('hset', bucket, 'last_refill_fraction', digits(fraction))
      elseif fields[3] then
        redis.call('hdel', bucket, 'last_refill_fraction')
      end
      redis.call('pexpire', bucket, digits(math.ceil(2 * capacity * 1000 / rate)))
    end,
  }
end
