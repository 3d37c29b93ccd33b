-- An acquire on one limiter, up to its reply. acquire.lua and multi_acquire.lua include this file
-- as the end of the script and as the body of a function. KEYS, ARGV and what it returns and writes
-- are as in acquire.lua.
--
-- Uses    `deadline`, NaN for none; `server_now`, `now`; `call`; of shared/limits.lua `LARGEST`,
--         `ALWAYS_SUMMED`, `MOST_SUMMED`, `ALWAYS_REMOVED`, `MOST_READ`, `MOST_WALKED`, `SHARED`,
--         `NEWEST`, `always_removed`, `to_remove`, `most_walked`
-- Sets    nothing: it ends with the reply
-- Changes `to_remove`, less each expired grant that the call removes, or reads to say what is left

local pack = struct.pack
local name, value_key, permits_key = KEYS[1], KEYS[2], KEYS[3]
local other_value_key, other_permits_key = KEYS[4], KEYS[5] -- only with the option `setup`
local member, audited_rate, all = ARGV[2], ARGV[3], ARGV[4]
local rate_type = ARGV[6] == '1' and '1' or '0'

local first_run, last_run, call_key, taken_before = 1, 0, nil, nil
-- The place of each option's word in ARGV.
local setup, fifo, debt, share, newer_than, retry, reserve = nil, nil, nil, nil, nil, nil, nil
if ARGV[7] then
  first_run, last_run = 8, 7 + 2 * ARGV[7]
  local option = last_run + 1
  local word = ARGV[option]
  while word do
    if word == 'setup' then
      setup, option = option, option + 6
    elseif word == 'fifo' then
      fifo, option = option, option + 1
    elseif word == 'debt' then
      debt, option = option, option + 1
    elseif word == 'share' then
      share, option = option, option + 3
    elseif word == 'newer' then
      newer_than, option = option, option + 2
    elseif word == 'retry' then
      retry, option = option, option + 4
    elseif word == 'reserve' then
      reserve, option = option, option + 2
    else
      error('unknown option ' .. word)
    end
    word = ARGV[option]
  end
  if first_run <= last_run then
    -- A copy of this call may have been granted in part: then nothing is decided again, as in a retry.
    call_key = KEYS[#KEYS]
    taken_before = call('get', call_key)
  end
end

local fields = call('hmget', name, 'rate', 'interval', 'type', 'keepAliveTime')
local other_keep_alive -- of a limiter that keeps other settings than those of `setup`
if setup and ARGV[setup + 5] == '2' and (fields[1] or fields[2] or fields[3]) then
  local keep_alive = fields[4] or '0'
  local has_these = fields[1] == ARGV[setup + 1] and fields[2] == ARGV[setup + 2] and fields[3] == ARGV[setup + 3]
    and keep_alive == ARGV[setup + 4]
  setup, other_keep_alive = nil, not has_these and tonumber(keep_alive) or nil
end
local other_type = setup and ARGV[setup + 3] or fields[3]
if other_type ~= rate_type and (other_type == '0' or other_type == '1') then
  return pack('<dd', server_now, other_type) .. 'type'
end
local text = call('get', value_key)
local first = call('zrange', permits_key, '0', '0', 'withscores')
local oldest_grant = first[1]

-- The common case comes first, without functions or tables of its own: all keys are present and well formed, and the value
-- agrees with the grants as far as their number shows. Every other case goes through window.lua.
-- A text in Redis's form of an integer is found by pattern: formatting a number costs as much as a command.
local check, find, POSITIVE = audited_rate ~= fields[1], string.find, '^[1-9]%d*$'
local rate, interval, stored, oldest = nil, tonumber(fields[2]), tonumber(text), nil
local available, expired, summed = stored, 0, 0
local keep_alive = fields[4] ~= '0' and fields[4] or nil
local is_common = not (retry or taken_before or reserve) and interval and (stored or not (text or first[1])) and fields[3] == rate_type
if is_common and check then
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
    and (not stored or stored <= rate and stored > -LARGEST and (text == '0' or find(text, '^%-?[1-9]%d*$')))
  if first[1] then
    oldest = first[2] + 0
    is_common = is_common and oldest % 1 == 0 and oldest < LARGEST
  else
    available = rate -- nothing is in use
  end
end
if is_common and oldest and oldest <= now - interval then
  -- Usually one grant has expired, which has been read already.
  local expired_grants, next = first, call('zrange', permits_key, '1', '1', 'withscores')
  expired = 1
  if next[1] and next[2] + 0 <= now - interval then
    local most = math.min(ALWAYS_REMOVED, to_remove)
    expired_grants = call('zrangebyscore', permits_key, '-inf', string.format('%d', now - interval), 'limit', '0', most)
    expired = #expired_grants
    is_common = expired < most -- else there may be more
    if is_common then
      to_remove = to_remove - expired
    end
    local place = string.format('%d', expired)
    next = call('zrange', permits_key, place, place, 'withscores')
  end
  for i = 1, expired do
    local grant = expired_grants[i]
    --! include shared/held.lua
    available = available + held
  end
  if available > rate then
    available = rate -- a peer's release raised the value and left its grant, which has expired now
  end
  oldest_grant, oldest = next[1], tonumber(next[2])
  if not oldest then
    available = rate -- nothing is in use
  else
    is_common = is_common and oldest % 1 == 0 and oldest < LARGEST
    if not check then
      local number, in_use = call('zcard', permits_key) - expired, rate - available
      is_common = is_common and (number == in_use or (number > ALWAYS_SUMMED and number < in_use))
    end
  end
end
if is_common and check and oldest then
  summed = call('zcard', permits_key) - expired
  if summed > MOST_SUMMED then
    summed = -1
  else
    local last = string.format('%d', expired + summed - 1)
    local grants, in_use = call('zrange', permits_key, string.format('%d', expired), last), 0
    for i = 1, summed do
      local grant = grants[i]
      --! include shared/held.lua
      in_use = in_use + held
    end
    is_common = available + in_use == rate
  end
end
if is_common and oldest then
  local grant = oldest_grant
  --! include shared/held.lua
  is_common = held > 0 -- else it is the fence of a lease, and nothing comes back when it expires
end

local window, limiter
if not is_common then
  -- Included here because creating its functions takes as long as a command.
  --! include shared/window.lua
  window = load_window()

  -- What the call was granted before, by an earlier attempt or by a copy of this one, is not decided again.
  local taken, score, more
  if fields[1] and fields[2] and fields[3] == rate_type then
    if taken_before then
      taken, score = string.match(taken_before, '^(%d+) (%-?%d+)$')
    end
    if not taken then
      local found
      if retry then
        found, score, more = window.find_call(permits_key, member, ARGV[retry + 2] + 0, ARGV[retry + 3] + 0)
      else
        score = call('zscore', permits_key, member)
        found = score and member
      end
      taken = found and window.permits_of(found)
    end
    if taken then
      rate, interval = window.integer(fields[1]) or 0, window.integer(fields[2]) or 0
      local first_back = window.until_first(permits_key, now, interval)
      -- What is left now is counted as for a request for all of it, which writes nothing.
      local now_left, left = window.open(name, value_key, value_key, permits_key, permits_key, fields, text), 0
      if now_left and not window.reconcile(now_left, now, false, rate) then
        left = math.max(now_left.available, 0)
      end
      if reserve then
        -- It can be used from the time of its fence on, whatever the interval is now.
        local call_id = string.sub(member, 2, 17)
        --! include shared/fence.lua name
        local usable_at = call('zscore', permits_key, fence)
        interval = usable_at and math.max(score - usable_at, 0) or 0
      end
      return pack('<ddddddddddddd', server_now, tonumber(taken), first_back, interval, interval, rate, 0, 0, 1,
        math.floor(tonumber(score)), -1, -1, left)
    end
  end
  if retry then
    local wait = ARGV[retry + 1] - server_now + 1
    if wait > 0 then
      return pack('<dd', server_now, wait) .. 'early'
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
  limiter, failure = window.open(name, value_key, value_key, permits_key, permits_key, fields, text, required)
  if failure then
    return failure
  end
  rate, interval, available = limiter.rate, limiter.interval, 0
  keep_alive = limiter.keep_alive > 0 and limiter.keep_alive or nil
end

local total = all + 0
local any_fits = debt or total <= rate
if not any_fits then
  for i = first_run, last_run, 2 do
    any_fits = any_fits or tonumber(ARGV[i]) <= rate
  end
end

if limiter and any_fits then
  local wanted = debt and -math.huge or math.min(total, rate)
  if share then
    local permille = ARGV[share + 1] + 0
    wanted = rate
    if permille > 0 and total <= SHARED then
      wanted = math.max(math.min(math.ceil((total * 1000 - ARGV[share + 2]) / permille), rate), 0)
    end
  end
  local failure = window.reconcile(limiter, now, check, wanted)
  if failure then
    return failure
  end
  available, stored = limiter.available, limiter.stored
  oldest, expired = limiter.oldest, limiter.expired
  summed = limiter.unread > 0 and math.min(limiter.summed, 0) - 2 or limiter.summed
  if window.is_unfinished(limiter, wanted) then
    window.prepare(limiter)
    window.write(limiter, 0)
    if retry then
      return pack('<dd', server_now, ARGV[retry + 3] + 1) .. 'more' -- no earlier attempt was granted up to there
    end
    return pack('<dd', server_now, 0) .. 'again'
  end
end

local allowed = debt and total or available
if share and available <= SHARED then
  local thousandths = available * ARGV[share + 1] + ARGV[share + 2]
  allowed = math.max(math.min(available, (thousandths - thousandths % 1000) / 1000), 0)
end
-- By how much the score of the grant is ahead of now. The limiter must not expire before the grant.
local until_score, until_usable, said = 0, 0, nil
local grant = member
--! include shared/ahead.lua
if ahead > 0 and any_fits then
  local life = keep_alive and keep_alive + 0 or call('pttl', name)
  local most = life < 0 and ahead or math.max(life - interval, 0)
  until_score = math.min(ahead, most)
  if reserve then
    until_usable = window.until_available(limiter, now, total, MOST_WALKED)
    until_score = until_usable + interval
    local is_granted = until_usable <= ARGV[reserve + 1] + 0 and until_score <= most
    allowed = is_granted and total or 0
    said = is_granted and math.max(available, total) or math.min(available, total - 1)
  end
end
local reset = oldest and interval - now + oldest or interval -- until the first grant expires
-- A copy of this call may have been granted all of it, and left too little. Then this one takes all
-- again, and ZADD finds the grant.
local is_copy = allowed < total and not limiter and call('zscore', permits_key, member)
if not (any_fits or is_copy) then
  local reply = pack('<dddddd', server_now, 0, interval, interval, interval, rate)
  return other_keep_alive and reply .. pack('<ddddddd', 0, 0, 0, now, -1, -1, other_keep_alive) or reply
end

local newer = -1
if newer_than then
  newer = 0
  if not (limiter and limiter.is_reset) then
    local newer_than_score = ARGV[newer_than + 1] + 0
    local grants = call('zrevrangebyscore', permits_key, '+inf', '(' .. ARGV[newer_than + 1], 'limit', '0', NEWEST)
    for i = 1, #grants do
      local grant = grants[i]
      --! include shared/held.lua
      --! include shared/ahead.lua
      if ahead == 0 or call('zscore', permits_key, grant) - ahead > newer_than_score then
        newer = newer + held
      end
    end
  end
end

local taken, taken_text, lacks, most_lacking = total, all, nil, total - available
if allowed < total and not is_copy then
  -- Not all fit: the requests are decided one after the other. A single request takes nothing.
  local left, is_blocked = allowed, false
  lacks, most_lacking = {}, first_run > last_run and most_lacking or 0
  for i = first_run, last_run, 2 do
    local permits, count = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
    if permits <= rate and not is_blocked then
      local granted = math.max(math.min(count, math.floor(left / permits)), 0)
      left = left - granted * permits
      if granted < count then
        is_blocked, lacks[i] = fifo, permits - left
        if lacks[i] > most_lacking then
          most_lacking = lacks[i]
        end
      end
    end
  end
  taken = allowed - left
  if taken > 0 then
    taken_text = string.format('%d', taken)
    member = pack('<c0I', string.sub(member, 1, -5), taken)
  end
end

-- Until what is in use now is back: grants that are ahead of now count as made now.
local all_back, clock_ahead = interval, 0
if oldest and taken < total then
  local newest = call('zrange', permits_key, '-1', '-1', 'withscores')[2]
  all_back = newest and math.max(math.min(math.ceil(interval - now + newest), interval), 0) or interval
end
if oldest and check then
  local grants = call('zrevrangebyscore', permits_key, '+inf', '(' .. string.format('%d', now), 'withscores', 'limit', '0', NEWEST)
  for i = 1, #grants, 2 do
    local grant = grants[i]
    --! include shared/ahead.lua
    clock_ahead = math.max(clock_ahead, math.min(math.ceil(grants[i + 1] - ahead - now), LARGEST))
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
  -- Before the value is written: a server that is out of memory refuses these commands, and the value must stay then.
  if taken < total and call_key and deadline == deadline then
    call('set', call_key, taken_text .. ' ' .. score_text, 'px', string.format('%d', deadline - server_now + 1))
  end
  if call('zadd', permits_key, 'nx', score_text, member) == 0 then
    -- The same call ran before: a proxy or a driver sent it twice.
    local score = call('zscore', permits_key, member)
    return pack('<ddddddddddddd', server_now, taken, math.min(reset, interval), interval, interval, rate, 0, 0, 1,
      math.floor(tonumber(score)), -1, -1, math.max(available, 0))
  end
end

local all_expired, needed = expired > 0 and not oldest, setup and interval or 0
-- A denial that found the keys in order leaves the times to live as they are.
local renews = taken > 0 or expired > 0 or check or setup or available ~= stored
  or limiter and limiter.excess > 0
if limiter and limiter.is_deleted then
  expired = 0
end
--! include shared/write.lua
if taken > 0 and until_usable < until_score then
  -- After the expired grants are removed, by their number: a copy of the call may move a fence that is one of them.
  local call_id = string.sub(member, 2, 17)
  --! include shared/fence.lua name
  call('zadd', permits_key, string.format('%d', now + until_usable), fence)
end
local expires_in = taken < total and keep_alive and keep_alive + 0 or -1
if expires_in / 2 >= reset + 3 then
  expires_in = -1
end

-- Ms until more permits are available than now, and until those of each run are: they come back with the oldest grant,
-- unless it holds too few. Callers of a list with `fifo` or `share` are not told.
local backs
if taken < total and oldest and not (fifo or share or reserve) then
  local more = math.max(taken - available, 0) + 1
  local grant = oldest_grant
  --! include shared/held.lua
  if limiter or reset > interval or math.max(most_lacking, more) > held then
    local lacking = { more, first_run > last_run and total - available or nil }
    local count = #lacking
    for i = first_run, last_run, 2 do
      count = count + 1
      lacking[count] = lacks[i] or more
    end
    -- Each number once, in ascending order: most runs lack as many as another one.
    local key, place, missing, most, texts, differ = permits_key, 0, {}, most_walked, {}, false
    for i = 1, count do
      if not texts[lacking[i]] then
        missing[#missing + 1], texts[lacking[i]] = lacking[i], ''
      end
    end
    table.sort(missing)
    --! include shared/until_back.lua
    for i = 1, #missing do
      local time = math.max(until_back[i], 1)
      texts[missing[i]] = pack('<d', time)
      differ = differ or time ~= math.max(reset, 1)
    end
    if differ then
      for i = 1, count do
        lacking[i] = texts[lacking[i]]
      end
      backs = table.concat(lacking)
    end
  end
end

local has_details = newer >= 0 or expires_in >= 0 or ahead > 0 or other_keep_alive or backs
local is_short = not (limiter or check or has_details)
if is_short and taken == total then
  return pack('<dddd', server_now, available, reset, interval)
end
local reply = pack('<ddddd', server_now, said or available, reset, interval, all_back)
if is_short then
  return reply
end
if not has_details then
  return reply .. pack('<ddd', rate, clock_ahead, summed)
end
reply = reply .. pack('<ddddddd', rate, clock_ahead, summed, 0, now + until_score, newer, expires_in)
if not (other_keep_alive or backs) then
  return reply
end
return reply .. pack('<d', other_keep_alive or -1) .. (backs or '')
