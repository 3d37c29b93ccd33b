-- A rate limiter as one of several limiters in joint.lua, with steps of its own instead of the
-- parts of a policy.
--
-- KEYS    name, value, value of the client, permits, permits of the client
-- numbers 1  rate, 0 if the limiter's own settings count
--         2  interval in ms
--         3  type, 0 overall or 1 per client
--         4  keep alive in ms, 0 for none
--         5  2 if an existing limiter keeps its settings. Else it gets these, but a longer keep
--            alive stays, and one without a keep alive gets one, or loses its own, only with 1
--         Then, in a further call of a peek, what the call before returned for this limiter
-- Writes  as acquire.lua does. If the limiter is missing or gets other settings, the hash: live
--         grants go on counting, but a change of the type resets the limiter, and deletes what an
--         earlier one of this name left
--
-- Uses    `load_window`; `ALWAYS_SUMMED`, `MOST_WALKED_JOINTLY`, `always_removed`, `to_remove`;
--         `call`, `pack`, `unpack_numbers`, `format`, `ceil`, `max`, `min`; `server_now`, `now`;
--         `call_id`, `peeks`, `resets`
-- Sets    `shared_rate`, which joint.lua calls for each such limiter; `window`, `NUMBERS`
-- Changes `to_remove`, for as long as it brings a limiter up to date

local window
local NUMBERS = 40 -- bytes of the five numbers

local function shared_rate(keys, numbers, cost)
  window = window or load_window() -- creating its functions takes as long as a command
  local name, value, client_value, permits, client_permits = unpack(keys)
  local required = { unpack_numbers('<ddddd', numbers) }
  if required[1] == 0 or resets then
    required = nil
  end

  local limiter, failure = window.open(
    name, value, client_value, permits, client_permits, nil, nil, required)
  if failure then
    return failure
  end
  if resets then
    return { keys = { limiter.value_key, limiter.permits_key }, limit = 0, room = 0 }
  end
  local expired_permits, progress
  if peeks and not limiter.is_reset then
    -- Expired grants are counted and stay.
    local is_last, sum, count, oldest = nil, 0, 0, nil
    if #numbers > NUMBERS then
      sum, count = unpack_numbers('<dd', numbers, NUMBERS + 1)
      oldest = string.sub(numbers, NUMBERS + 17) -- behind these two
    end
    is_last, sum, count, oldest = window.sum_expired(limiter, now, sum, count, oldest)
    -- Returned with the last page too: another limiter may have more pages.
    progress = oldest and pack('<dd', sum, count) .. oldest
    if not is_last then
      return { is_unfinished = true, progress = progress, limit = 0, room = 0 }
    end
    expired_permits = sum
  end
  -- If many grants have expired, removes a few of them whatever the decision is, and as many more
  -- as the request needs.
  if not peeks and window.has_many_expired(limiter, now) then
    local wanted = min(cost, limiter.rate)
    failure = window.reconcile(limiter, now, false, wanted)
    if failure then
      return failure
    end
    window.prepare(limiter)
    window.write(limiter, 0)
    if window.is_unfinished(limiter, wanted) then
      return { is_unfinished = true, limit = 0, room = 0 }
    end
    limiter = window.open(name, value, client_value, permits, client_permits, nil, nil, required)
  end

  local others_may_remove = to_remove
  to_remove = window.has_many_expired(limiter, now) and 0 or always_removed
  local are_few = not limiter.is_reset and call('zcard', limiter.permits_key) <= ALWAYS_SUMMED
  failure = window.reconcile(limiter, now, are_few, 0, expired_permits)
  to_remove = others_may_remove
  if failure then
    return failure
  end

  local available = limiter.available
  local fits = cost <= available
  if not fits then
    -- A copy of this call may have been granted, and left too little.
    local is_copy = call('zscore', limiter.permits_key, window.pack(call_id, cost))
    fits, available = is_copy and not limiter.is_reset, max(available, 0)
  end

  -- Returns the ms until this many permits are available, if none is taken.
  local function until_available(number)
    local wanted = min(number, limiter.rate)
    return limiter.oldest_score
      and max(window.until_available(limiter, now, wanted, MOST_WALKED_JOINTLY), 1)
      or max(limiter.interval, 1)
  end

  -- Returns the ms until no permit is in use: those taken now are the last to come back.
  local function until_all(taken)
    if taken > 0 then
      return limiter.interval
    end
    local newest = limiter.oldest_score
      and call('zrange', limiter.permits_key, '-1', '-1', 'withscores')
    local left = newest and newest[2] and ceil(limiter.interval - now + newest[2]) or 0
    return max(min(left, limiter.interval), 0)
  end

  local function write(taken)
    window.prepare(limiter, value, client_value, permits, client_permits)
    local key, member = limiter.permits_key, window.pack(call_id, taken)
    if taken > 0 and call('zadd', key, 'nx', format('%d', now), member) == 0 then
      taken = 0 -- the same call ran before: a proxy or a driver sent it twice
    end
    window.write(limiter, taken)
  end

  local function finish(taken, denied_cost)
    local until_more = until_available(taken + 1)
    local until_fits = fits and 0 or cost > 1 and until_available(cost) or until_more
    local state = pack('<dddddddddddd', server_now, now, 0, limiter.rate, fits and 1 or 0,
      available, until_more, until_all(taken), limiter.interval, limiter.rate_type,
      limiter.keep_alive, until_fits)
    -- A denial renews the times to live. Required settings may lengthen the keep alive of an
    -- existing limiter.
    local changes_settings = limiter.changes_settings and not limiter.is_reset
    if not peeks and (taken > 0 or denied_cost or changes_settings) then
      write(taken)
    end
    return state
  end

  local room = fits and cost or cost - 1
  return { limit = limiter.rate, room = room, progress = progress, finish = finish }
end
