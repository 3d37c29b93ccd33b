-- A log of the requests that were granted; each counts until the window has passed since.
--
-- KEYS    log
-- numbers 1  limit
--         2  window in ms
-- Writes  a member for each unit of cost, with the time as its score, so that a peer which counts the members counts the
--         same; members of windows that have passed go; the log's time to live, two windows: a peer that sets none may
--         have added to it until then
--
-- A member that is written here holds the call's 16 random bytes and its number in the call, as a big-endian u32. One of 21
-- bytes whose first is 16 is of an earlier version and carries its cost: the length byte, 16 random bytes, the cost as a
-- little-endian u32. No text begins so: any other member, and one that carries 0, counts 1.

local LARGEST_ADD = 1000 -- members; a Lua stack holds some thousand arguments

algorithms.sliding_log = function(keys, numbers, now, random)
  local log, limit, window = keys[1], numbers[1], numbers[2]
  local horizon = digits(now - window) -- requests up to here are over

  -- The newest first. Each counts at least 1, so what stands before as many as the limit changes nothing.
  local members = redis.call('zrevrangebyscore', log, '+inf', '(' .. horizon, 'limit', 0, digits(limit))
  local costs, used = {}, 0
  for i = 1, #members do
    local member, cost = members[i], 1
    if #member == 21 and string.byte(member) == 16 then
      local a, b, c, d = string.byte(member, 18, 21)
      cost = math.max(a + b * 256 + c * 65536 + d * 16777216, 1)
    end
    costs[i] = cost
    used = used + cost
  end

  local function score_of(member)
    return math.ceil(tonumber(redis.call('zscore', log, member)))
  end

  local newest = members[1] and score_of(members[1]) or now
  if newest >= LARGEST then
    return bad_state('a score of the log is not a time')
  end

  -- So many of the first members are ahead of this call's time.
  local ahead = newest > now and redis.call('zcount', log, '(' .. digits(now), '+inf') or 0

  local taken = 0

  -- Milliseconds until a request of this score is over.
  local function until_over(score)
    return score + window - now
  end

  -- The score of the request that has to be over for others to leave this room: the first, from the newest back, that
  -- may not stay.
  local function last_to_go(room)
    local stays = 0
    for i = 1, #members do
      if i == ahead + 1 then
        stays = stays + taken
        if stays > room then
          return now
        end
      end
      stays = stays + costs[i]
      if stays > room then
        return score_of(members[i])
      end
    end
    return now
  end

  return {
    limit = limit,
    ask = function(cost)
      local remaining = limit - used - taken
      if cost <= remaining then
        return true, remaining - cost, 0, until_over(math.max(newest, now)), 0
      end
      local last = taken > 0 and math.max(newest, now) or newest
      return false, math.max(remaining, 0), until_over(last_to_go(limit - cost)), until_over(last), 0
    end,
    charge = function(cost)
      taken = taken + cost
    end,
    write = function()
      local score = digits(now)
      for first = 1, taken, LARGEST_ADD do
        local members = {}
        for unit = first, math.min(first + LARGEST_ADD - 1, taken) do
          members[#members + 1] = score
          members[#members + 1] = random .. struct.pack('>I4', unit)
        end
        redis.call('zadd', log, unpack(members))
      end
      redis.call('zremrangebyscore', log, '-inf', horizon)
      redis.call('pexpire', log, digits(2 * window))
    end,
  }
end
