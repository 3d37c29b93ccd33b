-- Tokens that come in at the end of each unit of time; a request takes its cost out of them. The lock stands in
-- decide.lua, which looks at it for every target of this algorithm.
--
-- KEYS    tokens left, time of the last inflow
-- numbers 1  capacity
--         2  quantity that comes in with a unit
--         3  unit in ms
--         4  ms of the natural unit at whose start a first unit begins, 0 where it begins with the first request
--         5  time to live in ms of the last inflow, twice what an empty bucket takes to fill and at least a unit
-- Writes  at a grant the tokens, which live 10 ms longer than number 5, and the time where it moved

algorithms.penalty_token_bucket = function(keys, numbers, now)
  local bucket, started = keys[1], keys[2]
  local capacity, quantity, unit = numbers[1], numbers[2], numbers[3]
  local natural_unit, time_to_live = numbers[4], numbers[5]

  local tokens_text, start_text = redis.call('get', bucket), redis.call('get', started)
  -- Tokens that are lost are as many as there can be.
  local tokens, start = whole(tokens_text or digits(capacity)), whole(start_text or digits(now))
  if not (tokens and start) then
    return bad_state('the tokens or the time of the last inflow are not a whole number')
  end
  local start_moved = true
  if not start_text then
    -- The time of the last inflow outlives that of filling: the bucket is full.
    tokens = capacity
    if natural_unit > 0 then
      start = now - now % natural_unit
    end
  else
    tokens = math.max(math.min(tokens, capacity), 0)
    local units = math.max(math.floor((now - start) / unit), 0)
    if units >= math.ceil((capacity - tokens) / quantity) then
      tokens = capacity
    else
      tokens = tokens + units * quantity
    end
    start, start_moved = start + units * unit, units > 0
  end

  -- Milliseconds until there are so many tokens.
  local function until_there_are(wanted)
    return math.max(math.ceil((wanted - tokens) / quantity) * unit + start - now, 0)
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
      redis.call('set', bucket, digits(tokens), 'px', digits(time_to_live + 10))
      if start_moved then
        redis.call('set', started, digits(start), 'px', digits(time_to_live))
      end
    end,
  }
end
