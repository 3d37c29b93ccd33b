-- An acquire on one limiter, up to its reply: the end of acquire.lua, and the body of a function in
-- multi_acquire.lua. KEYS, ARGV, reply and writes are as in acquire.lua.
--
-- Uses    `deadline`, NaN for none; `server_now`, `now`; `call`; of shared/limits.lua `LARGEST`,
--         `ALWAYS_SUMMED`, `MOST_SUMMED`, `ALWAYS_REMOVED`, `MOST_READ`, `MOST_WALKED`, `SHARED`,
--         `NEWEST`, `always_removed`, `to_remove`, `most_walked`
-- Sets    nothing: it ends with the reply
-- Changes `to_remove`, less each expired grant that is removed, or that is read to say what is left

local pack = struct.pack
local name, value_key, permits_key = KEYS[1], KEYS[2], KEYS[3]
local other_value_key, other_permits_key = KEYS[4], KEYS[5] -- only with the option `setup`
local member, audited_rate, total_text = ARGV[2], ARGV[3], ARGV[4]
local rate_type = ARGV[6] == '1' and '1' or '0'

local first_run, last_run = 1, 0 -- their places in ARGV: there are no runs
local call_key, taken_before
-- For each option that is given, the place of its word in ARGV.
local setup, fifo, debt, share, newer, retry, reserve
if ARGV[7] then
  first_run, last_run = 8, 7 + 2 * ARGV[7]
  local place = last_run + 1
  local option = ARGV[place]
  while option do
    if option == 'setup' then
      setup, place = place, place + 6
    elseif option == 'fifo' then
      fifo, place = place, place + 1
    elseif option == 'debt' then
      debt, place = place, place + 1
    elseif option == 'share' then
      share, place = place, place + 3
    elseif option == 'newer' then
      newer, place = place, place + 2
    elseif option == 'retry' then
      retry, place = place, place + 4
    elseif option == 'reserve' then
      reserve, place = place, place + 2
    else
      error('unknown option ' .. option)
    end
    option = ARGV[place]
  end
  if first_run <= last_run then
    -- If a copy of this call was granted a part of the list, nothing is decided again.
    call_key = KEYS[#KEYS]
    taken_before = call('get', call_key)
  end
end

local fields = call('hmget', name, 'rate', 'interval', 'type', 'keepAliveTime')
local kept_keep_alive -- of a limiter that keeps other settings than those of `setup`
if setup and ARGV[setup + 5] == '2' and (fields[1] or fields[2] or fields[3]) then
  local keep_alive = fields[4] or '0'
  local has_these = fields[1] == ARGV[setup + 1] and fields[2] == ARGV[setup + 2]
    and fields[3] == ARGV[setup + 3] and keep_alive == ARGV[setup + 4]
  setup, kept_keep_alive = nil, not has_these and tonumber(keep_alive) or nil
end
local limiter_type = setup and ARGV[setup + 3] or fields[3] -- that it has, or gets
if limiter_type ~= rate_type and (limiter_type == '0' or limiter_type == '1') then
  return pack('<dd', server_now, limiter_type) .. 'type'
end
local text = call('get', value_key)
local oldest = call('zrange', permits_key, '0', '0', 'withscores')
local oldest_grant = oldest[1]

-- The common case comes first, without functions or tables of its own: all keys are present and
-- well formed, and the value agrees with the grants as far as their number shows. Every other case
-- goes through window.lua. Integers in Redis's form are found by pattern: formatting a number costs
-- as much as a command.
local must_sum = audited_rate ~= fields[1]
local find, POSITIVE = string.find, '^[1-9]%d*$'
local rate
local interval, stored_value = tonumber(fields[2]), tonumber(text)
local oldest_score
local available = stored_value
local expired, summed = 0, 0
local keep_alive = fields[4] ~= '0' and fields[4] or nil
local is_common = not (retry or taken_before or reserve) and interval
  and (stored_value or not (text or oldest[1])) and fields[3] == rate_type
if is_common and must_sum then
  rate = tonumber(fields[1])
  is_common = rate and (fields[1] == '0' or find(fields[1], POSITIVE))
elseif is_common then
  is_common = audited_rate ~= ''
  rate = is_common and audited_rate + 0 -- the caller knows it from an earlier reply
end
if is_common and keep_alive then
  is_common = find(keep_alive, POSITIVE) and keep_alive + 0 < LARGEST
end
if is_common and setup then
  is_common = ARGV[setup + 1] == fields[1] and ARGV[setup + 2] == fields[2]
  local required, is_required = ARGV[setup + 4], ARGV[setup + 5] == '1'
  if keep_alive and not (is_required and required == '0') then
    is_common = is_common and keep_alive + 0 >= required + 0 and keep_alive + 0 >= interval
  else
    is_common = is_common and (is_required and required or '0') == (keep_alive or '0')
  end
end
if is_common then
  is_common = rate < LARGEST and interval < LARGEST and find(fields[2], POSITIVE)
    and (not stored_value or stored_value <= rate and stored_value > -LARGEST
      and (text == '0' or find(text, '^%-?[1-9]%d*$')))
  if oldest[1] then
    oldest_score = oldest[2] + 0
    is_common = is_common and oldest_score % 1 == 0 and oldest_score < LARGEST
  else
    available = rate -- nothing is in use
  end
end
if is_common and oldest_score and oldest_score <= now - interval then
  -- Usually one grant has expired, which has been read already.
  local expired_grants = oldest
  local next_oldest = call('zrange', permits_key, '1', '1', 'withscores')
  expired = 1
  if next_oldest[1] and next_oldest[2] + 0 <= now - interval then
    local most = math.min(ALWAYS_REMOVED, to_remove)
    local horizon = string.format('%d', now - interval)
    expired_grants = call('zrangebyscore', permits_key, '-inf', horizon, 'limit', '0', most)
    expired = #expired_grants
    is_common = expired < most -- else there may be more
    if is_common then
      to_remove = to_remove - expired
    end
    local place = string.format('%d', expired)
    next_oldest = call('zrange', permits_key, place, place, 'withscores')
  end
  for i = 1, expired do
    local grant = expired_grants[i]
    --! include shared/held.lua
    available = available + held
  end
  if available > rate then
    available = rate -- a peer's release raised the value and left its grant, which expired now
  end
  oldest_grant, oldest_score = next_oldest[1], tonumber(next_oldest[2])
  if not oldest_score then
    available = rate -- nothing is in use
  else
    is_common = is_common and oldest_score % 1 == 0 and oldest_score < LARGEST
    if not must_sum then
      local number, in_use = call('zcard', permits_key) - expired, rate - available
      is_common = is_common
        and (number == in_use or (number > ALWAYS_SUMMED and number < in_use))
    end
  end
end
if is_common and must_sum and oldest_score then
  summed = call('zcard', permits_key) - expired
  if summed > MOST_SUMMED then
    summed = -1
  else
    local last = string.format('%d', expired + summed - 1)
    local grants = call('zrange', permits_key, string.format('%d', expired), last)
    local in_use = 0
    for i = 1, summed do
      local grant = grants[i]
      --! include shared/held.lua
      in_use = in_use + held
    end
    is_common = available + in_use == rate
  end
end
if is_common and oldest_score then
  local grant = oldest_grant
  --! include shared/held.lua
  is_common = held > 0 -- else it is a fence of a lease: nothing comes back when it expires
end

local window, limiter
if not is_common then
  -- Included here because creating its functions takes as long as a command.
  --! include shared/window.lua
  window = load_window()

  -- What an earlier attempt or a copy of this one was granted is not decided again.
  local taken, score, more
  if fields[1] and fields[2] and fields[3] == rate_type then
    if taken_before then
      taken, score = string.match(taken_before, '^(%d+) (%-?%d+)$')
    end
    if not taken then
      local grant
      if retry then
        grant, score, more = window.find_call(
          permits_key, member, ARGV[retry + 2] + 0, ARGV[retry + 3] + 0)
      else
        score = call('zscore', permits_key, member)
        grant = score and member
      end
      taken = grant and window.permits_of(grant)
    end
    if taken then
      rate, interval = window.integer(fields[1]) or 0, window.integer(fields[2]) or 0
      local until_first = window.until_first(permits_key, now, interval)
      -- Counts what is available now as for a request for all of it, but writes nothing.
      local opened = window.open(
        name, value_key, value_key, permits_key, permits_key, fields, text)
      local available_now = 0
      if opened and not window.reconcile(opened, now, false, rate) then
        available_now = math.max(opened.available, 0)
      end
      if reserve then
        -- Its permits can be used from the score of its fence on, whatever the interval is now.
        local call_id = string.sub(member, 2, 17)
        --! include shared/fence.lua name
        local usable_at = call('zscore', permits_key, fence)
        interval = usable_at and math.max(score - usable_at, 0) or 0
      end
      return pack('<ddddddddddddd', server_now, tonumber(taken), until_first, interval, interval,
        rate, 0, 0, 1, math.floor(tonumber(score)), -1, -1, available_now)
    end
  end
  if retry then
    local until_decided = ARGV[retry + 1] - server_now + 1
    if until_decided > 0 then
      return pack('<dd', server_now, until_decided) .. 'early'
    elseif more then
      return pack('<dd', server_now, more) .. 'more'
    end
  end

  local required
  if setup then
    required = {}
    for i = 1, 5 do
      required[i] = tonumber(ARGV[setup + i])
    end
  end
  local failure
  limiter, failure = window.open(
    name, value_key, value_key, permits_key, permits_key, fields, text, required)
  if failure then
    return failure
  end
  rate, interval, available = limiter.rate, limiter.interval, 0
  keep_alive = limiter.keep_alive > 0 and limiter.keep_alive or nil
end

local total = total_text + 0
local any_within_rate = debt or total <= rate
if not any_within_rate then
  for i = first_run, last_run, 2 do
    any_within_rate = any_within_rate or tonumber(ARGV[i]) <= rate
  end
end

if limiter and any_within_rate then
  -- How many available permits decide the list: more would change nothing.
  local wanted = debt and -math.huge or math.min(total, rate)
  if share then
    local permille = ARGV[share + 1] + 0
    wanted = rate
    if permille > 0 and total <= SHARED then
      wanted = math.ceil((total * 1000 - ARGV[share + 2]) / permille)
      wanted = math.max(math.min(wanted, rate), 0)
    end
  end
  local failure = window.reconcile(limiter, now, must_sum, wanted)
  if failure then
    return failure
  end
  available, stored_value = limiter.available, limiter.stored_value
  oldest_score, expired = limiter.oldest_score, limiter.expired
  summed = limiter.unread > 0 and math.min(limiter.summed, 0) - 2 or limiter.summed
  if window.is_unfinished(limiter, wanted) then
    window.prepare(limiter)
    window.write(limiter, 0)
    if retry then
      -- No earlier attempt was granted up to this score.
      return pack('<dd', server_now, ARGV[retry + 3] + 1) .. 'more'
    end
    return pack('<dd', server_now, 0) .. 'again'
  end
end

local allowed = debt and total or available -- how many permits the list may take
if share and available <= SHARED then
  local thousandths = available * ARGV[share + 1] + ARGV[share + 2]
  allowed = math.max(math.min(available, (thousandths - thousandths % 1000) / 1000), 0)
end
-- The ms from now until the score of the grant, and until its permits can be used.
local until_score, until_usable = 0, 0
local reported_available
local grant = member
--! include shared/ahead.lua
if ahead > 0 and any_within_rate then
  -- The limiter must not expire before the grant.
  local life = keep_alive and keep_alive + 0 or call('pttl', name)
  local most_ahead = life < 0 and ahead or math.max(life - interval, 0)
  until_score = math.min(ahead, most_ahead)
  if reserve then
    until_usable = window.until_available(limiter, now, total, MOST_WALKED)
    until_score = until_usable + interval
    local is_granted = until_usable <= ARGV[reserve + 1] + 0 and until_score <= most_ahead
    allowed = is_granted and total or 0
    reported_available = is_granted and math.max(available, total)
      or math.min(available, total - 1)
  end
end
-- The ms until the oldest live grant expires.
local until_first = oldest_score and interval - now + oldest_score or interval
-- A copy of this call may have been granted all of it, and left too little. Then this one takes it
-- again, and ZADD finds the grant.
local is_copy = allowed < total and not limiter and call('zscore', permits_key, member)
if not (any_within_rate or is_copy) then
  local reply = pack('<dddddd', server_now, 0, interval, interval, interval, rate)
  return kept_keep_alive and reply .. pack('<ddddddd', 0, 0, 0, now, -1, -1, kept_keep_alive)
    or reply
end

local newer_permits = -1
if newer then
  newer_permits = 0
  if not (limiter and limiter.is_reset) then
    local after = ARGV[newer + 1] + 0
    local grants = call('zrevrangebyscore', permits_key, '+inf', '(' .. ARGV[newer + 1],
      'limit', '0', NEWEST)
    for i = 1, #grants do
      local grant = grants[i]
      --! include shared/held.lua
      --! include shared/ahead.lua
      if ahead == 0 or call('zscore', permits_key, grant) - ahead > after then
        newer_permits = newer_permits + held
      end
    end
  end
end

local taken, taken_text = total, total_text
local lacks -- for each run, by its place in ARGV, how many permits its first denied request lacks
local most_lacking = total - available
if allowed < total and not is_copy then
  -- Not all fit: the requests are decided one after the other. A single request takes nothing.
  local remaining, is_blocked = allowed, false
  lacks, most_lacking = {}, first_run > last_run and most_lacking or 0
  for i = first_run, last_run, 2 do
    local permits, count = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
    if permits <= rate and not is_blocked then
      local granted = math.max(math.min(count, math.floor(remaining / permits)), 0)
      remaining = remaining - granted * permits
      if granted < count then
        is_blocked, lacks[i] = fifo, permits - remaining
        if lacks[i] > most_lacking then
          most_lacking = lacks[i]
        end
      end
    end
  end
  taken = allowed - remaining
  if taken > 0 then
    taken_text = string.format('%d', taken)
    member = pack('<c0I', string.sub(member, 1, -5), taken)
  end
end

-- The ms until all that is in use now is back: a grant that is ahead counts as made now.
local until_all_back = interval
local clock_ahead = 0
if oldest_score and taken < total then
  local newest = call('zrange', permits_key, '-1', '-1', 'withscores')[2]
  until_all_back = newest
    and math.max(math.min(math.ceil(interval - now + newest), interval), 0) or interval
end
if oldest_score and must_sum then
  local grants = call('zrevrangebyscore', permits_key, '+inf', '(' .. string.format('%d', now),
    'withscores', 'limit', '0', NEWEST)
  for i = 1, #grants, 2 do
    local grant = grants[i]
    --! include shared/ahead.lua
    local made_ahead = math.min(math.ceil(grants[i + 1] - ahead - now), LARGEST)
    clock_ahead = math.max(clock_ahead, made_ahead)
  end
end
if limiter then
  window.prepare(limiter, value_key, permits_key, other_value_key, other_permits_key)
end
if taken == 0 and not reserve then
  until_score = 0
end
if taken > 0 then
  local score_text = ARGV[5] or ''
  if until_score > 0 or score_text == '' then
    score_text = string.format('%d', now + until_score)
  end
  -- The value is written later: it must stay if a server without memory refuses these commands.
  if taken < total and call_key and deadline == deadline then
    local lifetime = string.format('%d', deadline - server_now + 1)
    call('set', call_key, taken_text .. ' ' .. score_text, 'px', lifetime)
  end
  if call('zadd', permits_key, 'nx', score_text, member) == 0 then
    -- The same call ran before: a proxy or a driver sent it twice.
    local score = call('zscore', permits_key, member)
    return pack('<ddddddddddddd', server_now, taken, math.min(until_first, interval), interval,
      interval, rate, 0, 0, 1, math.floor(tonumber(score)), -1, -1, math.max(available, 0))
  end
end

local all_expired = expired > 0 and not oldest_score
local needed_ttl = setup and interval or 0
-- A denial that found the keys in order leaves the times to live as they are.
local renews = taken > 0 or expired > 0 or must_sum or setup or available ~= stored_value
  or limiter and limiter.excess > 0
if limiter and limiter.is_deleted then
  expired = 0
end
--! include shared/write.lua
if taken > 0 and until_usable < until_score then
  -- Only now, because expired grants are removed by their number: a copy of the call may move a
  -- fence that is one of them.
  local call_id = string.sub(member, 2, 17)
  --! include shared/fence.lua name
  call('zadd', permits_key, string.format('%d', now + until_usable), fence)
end
local expires_in = taken < total and keep_alive and keep_alive + 0 or -1
if expires_in / 2 >= until_first + 3 then
  expires_in = -1
end

-- When what the denied requests lack is back, as fields 14 and later of the reply. Permits come
-- back with the oldest grant, unless it holds too few. Callers with `fifo` or `share` are not told.
local times_back
if taken < total and oldest_score and not (fifo or share or reserve) then
  local one_more = math.max(taken - available, 0) + 1
  local grant = oldest_grant
  --! include shared/held.lua
  if limiter or until_first > interval or math.max(most_lacking, one_more) > held then
    local lacking = { one_more, first_run > last_run and total - available or nil }
    local count = #lacking
    for i = first_run, last_run, 2 do
      count = count + 1
      lacking[count] = lacks[i] or one_more
    end
    -- Each number once, in ascending order: most runs lack as many as another one.
    local missing = {}
    local times = {} -- by these numbers, as they are sent
    for i = 1, count do
      if not times[lacking[i]] then
        missing[#missing + 1], times[lacking[i]] = lacking[i], ''
      end
    end
    table.sort(missing)
    local key, place, most = permits_key, 0, most_walked
    --! include shared/until_back.lua
    local any_differs = false -- from field 3
    for i = 1, #missing do
      local time = math.max(until_back[i], 1)
      times[missing[i]] = pack('<d', time)
      any_differs = any_differs or time ~= math.max(until_first, 1)
    end
    if any_differs then
      for i = 1, count do
        lacking[i] = times[lacking[i]]
      end
      times_back = table.concat(lacking)
    end
  end
end

local has_details = newer_permits >= 0 or expires_in >= 0 or ahead > 0 or kept_keep_alive
  or times_back
local is_short = not (limiter or must_sum or has_details)
if is_short and taken == total then
  return pack('<dddd', server_now, available, until_first, interval)
end
local reply = pack('<ddddd', server_now, reported_available or available, until_first, interval,
  until_all_back)
if is_short then
  return reply
end
if not has_details then
  return reply .. pack('<ddd', rate, clock_ahead, summed)
end
reply = reply
  .. pack('<ddddddd', rate, clock_ahead, summed, 0, now + until_score, newer_permits, expires_in)
if not (kept_keep_alive or times_back) then
  return reply
end
return reply .. pack('<d', kept_keep_alive or -1) .. (times_back or '')
