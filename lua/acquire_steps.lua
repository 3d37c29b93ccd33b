-- What an acquire does to one limiter. script.rs puts this file where acquire.lua and acquire_each.lua say that they want it:
-- they bind the names that it uses, read the clock, and describe what it returns and writes.

local first_run, last_run, options, retry, set_up, call_key, taken_before = 1, 0, nil, nil, nil, nil, nil
if first_word <= last_word then
  local numbers = { line = 0, share = 2, newer = 1, retry = 3, setup = 5 }
  first_run, last_run = first_word + 1, first_word + 2 * ARGV[first_word]
  options = {}
  local option = last_run + 1
  while option <= last_word do
    local word = ARGV[option]
    options[word] = option
    option = option + 1 + numbers[word]
  end
  retry, set_up = options.retry, options.setup
  if first_run <= last_run then
    -- A copy of this call may have been granted a part: then nothing is decided anew, as in a retry.
    call_key = KEYS[last_key or #KEYS]
    taken_before = call('get', call_key)
    retry = retry or taken_before
  end
end

local fields = call('hmget', name, 'rate', 'interval', 'type', 'keepAliveTime')
local is_other_type = fields[3] ~= rate_type and (fields[3] == '0' or fields[3] == '1') and not set_up
if is_other_type then
  return pack('<dd', server_now, fields[3]) .. 'type'
end
local text = call('get', value_key)
local first = call('zrange', permits_key, '0', '0', 'withscores')

-- The common case first, without a function or a table of its own: all is there, and the permits left agree with the
-- grants as far as their numbers tell. What else there is, bookkeeping settles.
local check = summed_rate ~= fields[1]
local rate, interval, stored, oldest = nil, tonumber(fields[2]), tonumber(text), nil
local balance, gone, counted = stored, 0, 0
local keep_alive = fields[4] ~= '0' and fields[4] or nil
local is_common = not retry and interval and (stored or not (text or first[1])) and fields[3] == rate_type
if is_common and check then
  rate = tonumber(fields[1])
  is_common = rate and rate % 1 == 0 and rate >= 0 and rate .. '' == fields[1]
elseif is_common then
  is_common = summed_rate ~= ''
  rate = is_common and summed_rate + 0 -- the caller was told it
end
if is_common and keep_alive then
  local number = tonumber(keep_alive)
  is_common = number and number % 1 == 0 and number > 0 and number .. '' == keep_alive
end
if is_common and set_up then
  is_common = ARGV[set_up + 1] == fields[1] and ARGV[set_up + 2] == fields[2]
    and (ARGV[set_up + 5] ~= '1' or ARGV[set_up + 4] == (fields[4] or '0'))
end
if is_common then
  -- Lua makes the same text of an integer only where the text is in Redis's form, and the integer not too large.
  is_common = rate < LARGEST and interval % 1 == 0 and interval > 0 and interval .. '' == fields[2]
    and (not stored or stored % 1 == 0 and stored <= rate and stored .. '' == text and text ~= '-0')
  if first[1] then
    oldest = first[2] + 0
    is_common = is_common and oldest % 1 == 0 and oldest < LARGEST
  else
    balance = rate -- nothing is out, so everything is here
  end
end
if is_common and oldest and oldest <= now - interval then
  -- Mostly one grant is over, and it is at hand.
  local over, next = first, call('zrange', permits_key, '1', '1', 'withscores')
  gone = 1
  if next[1] and next[2] + 0 <= now - interval then
    local most = math.min(SPARE, to_remove)
    over = call('zrangebyscore', permits_key, '-inf', string.format('%d', now - interval), 'limit', '0', most)
    gone = #over
    is_common = gone < most -- else there may be more
    if is_common then
      to_remove = to_remove - gone
    end
    local place = string.format('%d', gone)
    next = call('zrange', permits_key, place, place, 'withscores')
  end
  for i = 1, gone do
    local grant = over[i]
    if #grant == 5 + (string.byte(grant) or 0) then
      local a, b, c, d = string.byte(grant, -4, -1)
      balance = balance + a + b * 256 + c * 65536 + d * 16777216
    end
  end
  oldest = tonumber(next[2])
  if not oldest then
    balance = rate -- nothing is out, so everything is here
  else
    is_common = is_common and oldest % 1 == 0 and oldest < LARGEST
    if not check then
      local number, room = call('zcard', permits_key) - gone, rate - balance
      is_common = is_common and (number == room or (number > FEW and number < room))
    end
  end
end
if is_common and check and oldest then
  counted = call('zcard', permits_key) - gone
  if counted > SUMMED then
    counted = -1
  else
    local last = string.format('%d', gone + counted - 1)
    local grants, used = call('zrange', permits_key, string.format('%d', gone), last), 0
    for i = 1, counted do
      local grant = grants[i]
      if #grant == 5 + (string.byte(grant) or 0) then
        local a, b, c, d = string.byte(grant, -4, -1)
        used = used + a + b * 256 + c * 65536 + d * 16777216
      end
    end
    is_common = balance + used == rate
  end
end

local books, limiter
if not is_common then
  -- To make its functions takes as long as a command, so script.rs puts the file here, in place of the next line.
  -- window.lua
  books = bookkeeping()

  if retry then
    local found, score, more
    if taken_before and fields[1] and fields[2] and fields[3] == rate_type then
      local taken, score = string.match(taken_before, '^(%d+) (%-?%d+)$')
      if taken then
        rate, interval = books.integer(fields[1]) or 0, books.integer(fields[2]) or 0
        return pack('<ddddddddddd', server_now, tonumber(taken), books.until_first(permits_key, now, interval), rate, 0,
          0, 1, tonumber(score), -1, -1, interval)
      end
    end
    retry = options.retry
    if retry and fields[1] and fields[2] and fields[3] == rate_type then
      found, score, more = books.find_call(permits_key, member, ARGV[retry + 2] + 0, ARGV[retry + 3] + 0)
    end
    if found then
      rate, interval = books.integer(fields[1]) or 0, books.integer(fields[2]) or 0
      return pack('<ddddddddddd', server_now, books.permits_of(found), books.until_first(permits_key, now, interval),
        rate, 0, 0, 1, math.floor(tonumber(score)), -1, -1, interval)
    end
    local wait = retry and ARGV[retry + 1] - server_now + 1 or 0
    if wait > 0 then
      return pack('<dd', server_now, wait) .. 'early'
    elseif more then
      return pack('<dd', server_now, more) .. 'more'
    end
  end

  local settings
  if set_up then
    settings = {}
    for i = 1, 5 do
      settings[i] = tonumber(ARGV[set_up + i])
    end
  end
  local failure
  limiter, failure = books.open(name, value_key, value_key, permits_key, permits_key, fields, text, settings)
  if failure then
    return failure
  end
  rate, interval = limiter.rate, limiter.interval
end

local total = all + 0
if total > rate then
  local any_fits = false
  for i = first_run, last_run, 2 do
    any_fits = any_fits or tonumber(ARGV[i]) <= rate
  end
  if not any_fits then
    return pack('<dddd', server_now, 0, interval, rate)
  end
end

if limiter then
  local wanted, share = math.min(total, rate), options and options.share
  if share then
    local permille = ARGV[share + 1] + 0
    wanted = rate
    if permille > 0 and total <= SHARED then
      wanted = math.max(math.min(math.ceil((total * 1000 - ARGV[share + 2]) / permille), rate), 0)
    end
  end
  local failure = books.settle(limiter, now, check, wanted)
  if failure then
    return failure
  end
  balance, oldest = limiter.balance, limiter.oldest
  if books.is_unfinished(limiter, wanted) then
    if limiter.sets_rate then
      books.store_set_up(limiter)
    end
    books.take_from_oldest(limiter, limiter.gone, limiter.excess)
    books.write(limiter, 0)
    books.renew(limiter)
    if retry then
      return pack('<dd', server_now, ARGV[retry + 3] + 1) .. 'more' -- what was looked for is not there
    end
    return pack('<dd', server_now, 0) .. 'again'
  end
end

local newer, allowed = -1, balance
if options then
  local option = options.newer
  if option then
    newer = 0
    if not (limiter and limiter.starts_afresh) then
      local grants = call('zrevrangebyscore', permits_key, '+inf', '(' .. ARGV[option + 1], 'limit', '0', NEWEST)
      for i = 1, #grants do
        local grant = grants[i]
        if #grant == 5 + (string.byte(grant) or 0) then
          local a, b, c, d = string.byte(grant, -4, -1)
          newer = newer + a + b * 256 + c * 65536 + d * 16777216
        end
      end
    end
  end
  option = options.share
  if option and balance <= SHARED then
    local thousandths = balance * ARGV[option + 1] + ARGV[option + 2]
    allowed = math.max(math.min(balance, (thousandths - thousandths % 1000) / 1000), 0)
  end
end

local taken, taken_text = total, all
if allowed < total then
  -- Not for all: one after the other. A request that is alone takes nothing.
  local left, in_line, line_stands = allowed, options and options.line, false
  for i = first_run, last_run, 2 do
    local asked, count = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
    if asked <= rate and not line_stands then
      local granted = math.max(math.min(count, math.floor(left / asked)), 0)
      left = left - granted * asked
      line_stands = in_line and granted < count
    end
  end
  taken = allowed - left
  if call_key then
    local score = call('zscore', permits_key, member)
    if score then
      -- A copy of this call was granted in full.
      return pack('<ddddddddddd', server_now, total, oldest and interval - now + oldest or interval, rate, 0, 0, 1,
        math.floor(tonumber(score)), -1, -1, interval)
    end
  end
  if taken > 0 then
    taken_text = string.format('%d', taken)
    if call_key and deadline ~= '' then
      local score = given_now == '' and string.format('%d', now) or given_now
      call('set', call_key, taken_text .. ' ' .. score, 'px', string.format('%d', deadline - server_now + 1))
    end
    member = pack('<c0I', string.sub(member, 1, -5), taken)
  end
end
local reset = oldest and interval - now + oldest or interval

if limiter then
  if limiter.sets_rate then
    books.store_set_up(limiter, value_key, permits_key, other_value_key, other_permits_key)
  end
  books.take_from_oldest(limiter, limiter.gone, limiter.excess)
  if books.is_deleted(limiter) then
    books.write(limiter, taken)
  end
end
if taken > 0 then
  -- Before the permits left are written: a full server refuses this one, and then those must stay.
  local score = given_now == '' and string.format('%d', now) or given_now
  if call('zadd', permits_key, 'nx', score, member) == 0 then
    -- A connection below this client sent the call twice.
    score = call('zscore', permits_key, member)
    return pack('<ddddddddddd', server_now, taken, reset, rate, 0, 0, 1, math.floor(tonumber(score)), -1, -1, interval)
  end
end

local lives = -1
if not limiter then
  if balance ~= stored then
    call('set', value_key, string.format('%d', balance - taken))
  elseif taken > 0 then
    call('decrby', value_key, taken_text)
  end
  if gone == 1 then
    call('zremrangebyrank', permits_key, '0', '0')
  elseif gone > 1 then
    call('zremrangebyrank', permits_key, '0', string.format('%d', gone - 1))
  end
  if keep_alive then
    call('pexpire', name, keep_alive)
    call('pexpire', value_key, keep_alive)
    call('pexpire', permits_key, keep_alive)
    lives = keep_alive + 0
  elseif taken > 0 or gone > 0 or check or balance ~= stored then
    -- A denial that found the keys as they should be leaves them alone.
    local time_to_live = call('pttl', name)
    if time_to_live >= 0 then
      time_to_live = math.max(time_to_live, 1) -- 0 in its last millisecond, which would delete them
      call('pexpire', value_key, time_to_live)
      call('pexpire', permits_key, time_to_live)
    end
  end
else
  if not books.is_deleted(limiter) then
    books.write(limiter, taken)
  end
  if taken > 0 or limiter.gone > 0 or limiter.excess > 0 or check or balance ~= limiter.stored
      or limiter.sets_rate or limiter.keep_alive > 0 then
    books.renew(limiter)
  end
  counted = limiter.counted
  if limiter.rest > 0 then
    counted = math.min(counted, 0) - 2
  end
  lives = limiter.keep_alive > 0 and limiter.keep_alive or -1
end
if taken == total or lives > reset + 3 then
  lives = -1
end

local tells_more = newer >= 0 or lives >= 0
if not (limiter or check or tells_more) then
  return pack('<ddd', server_now, balance, reset)
end
local newest = check and call('zrange', permits_key, '-1', '-1', 'withscores')[2]
local ahead = newest and math.min(math.max(math.ceil(newest - now), 0), LARGEST) or 0
if not tells_more then
  return pack('<dddddd', server_now, balance, reset, rate, ahead, counted)
end
return pack('<ddddddddddd', server_now, balance, reset, rate, ahead, counted, 0, now, newer, lives, interval)
