-- RRateLimiter as one of several limiters, or set up by its first request. lua/window.lua, which script.rs puts in front,
-- has what this shares with its own scripts.
--
-- KEYS    name, value, value of the client, permits, permits of the client
-- numbers 1  rate, 0 where the limiter stays as it is
--         2  interval in ms
--         3  type, 0 overall or 1 per client
--         4  keep alive in ms, 0 for none
--         5  1 where a limiter that is there must have this keep alive
-- Writes  as acquire.lua does. Where the limiter is not there or has another rate, the hash: what is in use counts on,
--         but a change of the type resets all, and what an earlier limiter of this name left goes

algorithms.shared_rate = function(keys, numbers, now, random, cost)
  local books = bookkeeping()
  local name, value, client_value, permits, client_permits = unpack(keys)
  local set_up = numbers[1] > 0 and numbers or nil

  local limiter, failure = books.open(name, value, client_value, permits, client_permits, nil, nil, set_up)
  if failure then
    return nil, failure
  end
  -- Where many grants have expired, a page of them is removed whatever is decided.
  if books.are_many_expired(limiter, now) then
    local wanted = math.min(cost, limiter.rate)
    failure = books.settle(limiter, now, false, wanted)
    if failure then
      return nil, failure
    end
    if limiter.sets_rate then
      books.store_set_up(limiter)
    end
    books.take_from_oldest(limiter, limiter.gone, limiter.excess)
    books.write(limiter, 0)
    books.renew(limiter)
    if books.is_unfinished(limiter, wanted) then
      return { is_unfinished = true }
    end
    limiter = books.open(name, value, client_value, permits, client_permits, nil, nil, set_up)
  end

  local others_may_remove = to_remove
  to_remove = books.are_many_expired(limiter, now) and 0 or SPARE
  failure = books.settle(limiter, now, not limiter.starts_afresh and redis.call('zcard', limiter.permits_key) <= FEW, 0)
  to_remove = others_may_remove
  if failure then
    return nil, failure
  end

  local balance, taken = limiter.balance, 0
  local reset = limiter.oldest and limiter.interval - now + limiter.oldest or limiter.interval

  -- What a peer's release gave back leaves the oldest grants, so another one may be the oldest then.
  local function take_excess()
    if limiter.excess == 0 then
      return
    end
    books.take_from_oldest(limiter, limiter.gone, limiter.excess)
    limiter.excess = 0
    local oldest = redis.call('zrangebyscore', limiter.permits_key, '(' .. digits(limiter.horizon), '+inf',
      'withscores', 'limit', 0, 1)[2]
    reset = oldest and limiter.interval - now + math.floor(tonumber(oldest)) or limiter.interval
  end

  return {
    limit = limiter.rate,
    ask = function(cost)
      local remaining = balance - taken
      local granted = cost <= remaining
      return granted, granted and remaining - cost or math.max(remaining, 0), math.max(reset, 1), math.max(reset, 0), 0
    end,
    charge = function(cost)
      take_excess()
      taken = taken + cost
    end,
    deny = take_excess, -- and a denial renews the times to live too
    write = function()
      if limiter.sets_rate then
        books.store_set_up(limiter, value, client_value, permits, client_permits)
      end
      if books.is_deleted(limiter) then
        books.write(limiter, taken)
      end
      if taken > 0
          and redis.call('zadd', limiter.permits_key, 'nx', digits(now), books.pack(random, taken)) == 0 then
        taken = 0 -- a connection below this client sent the call twice
      end
      if not books.is_deleted(limiter) then
        books.write(limiter, taken)
      end
      books.renew(limiter)
    end,
  }
end
