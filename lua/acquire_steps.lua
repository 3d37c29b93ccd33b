-- What an acquire does to one limiter. script.rs puts this file where acquire.lua and acquire_each.lua say that they want it:
-- they bind the names that it uses, read the clock, and describe what it returns and writes.

local fields = call('hmget', name, 'rate', 'interval', 'type', 'keepAliveTime')
if fields[3] ~= rate_type and (fields[3] == '0' or fields[3] == '1') then
  return pack('<dd', server_now, fields[3])
end
local text = call('get', value_key)
local first = call('zrange', permits_key, '0', '0', 'withscores')

-- The common case first, without a function or a table of its own: all is there, and the books balance as far as
-- their numbers tell. What else there is, bookkeeping settles.
local check = summed_rate ~= fields[1]
local rate, interval, stored, oldest = nil, tonumber(fields[2]), tonumber(text), nil
local balance, gone, counted = stored, 0, 0
local is_common = not sent_before and interval and (stored or not (text or first[1]))
  and fields[3] == rate_type and (fields[4] == '0' or not fields[4])
if is_common and check then
  rate = tonumber(fields[1])
  is_common = rate and rate % 1 == 0 and rate >= 0
elseif is_common then
  is_common = summed_rate ~= ''
  rate = is_common and summed_rate + 0 -- the caller was told it
end
if is_common then
  is_common = rate < LARGEST and interval % 1 == 0 and interval > 0 and interval < LARGEST
  if first[1] then
    oldest = first[2] + 0
    is_common = is_common and oldest % 1 == 0 and stored % 1 == 0 and stored >= 0 and stored <= rate
  else
    is_common = is_common and (stored or 0) % 1 == 0
    balance = rate -- nothing is out, so everything is here
  end
end
if is_common and oldest and oldest <= now - interval then
  -- Mostly one grant is over, and it is at hand.
  local over, next = first, call('zrange', permits_key, '1', '1', 'withscores')
  gone = 1
  if next[1] and next[2] + 0 <= now - interval then
    over = call('zrangebyscore', permits_key, '-inf', string.format('%d', now - interval))
    gone = #over
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
  elseif not check then
    local number, room = call('zcard', permits_key) - gone, rate - balance
    is_common = number == room or (number > FEW and number < room)
  end
end
if is_common and check and oldest then
  local live = call('zrangebyscore', permits_key, '(' .. string.format('%d', now - interval), '+inf')
  counted = #live
  local used = 0
  for i = 1, counted do
    local grant = live[i]
    if #grant == 5 + (string.byte(grant) or 0) then
      local a, b, c, d = string.byte(grant, -4, -1)
      used = used + a + b * 256 + c * 65536 + d * 16777216
    end
  end
  is_common = balance + used == rate
end

local books, limiter
if not is_common then
  -- To make its functions takes as long as a command, so script.rs puts the file here, in place of the next line.
  -- window.lua
  books = bookkeeping()
  local failure
  limiter, failure = books.open(name, value_key, value_key, permits_key, permits_key, fields, text)
  if failure then
    return failure
  end
  rate, interval = limiter.rate, limiter.interval
end

if sent_before then
  -- An earlier sending that got through left a member with these bytes. What it holds, used as the balance,
  -- leads the caller to the same answers.
  local grants = call('zrange', permits_key, 0, -1, 'withscores')
  local prefix = string.sub(member, 1, -5)
  for i = 1, #grants, 2 do
    if string.sub(grants[i], 1, #prefix) == prefix and books.permits_of(grants[i]) then
      local score = math.floor(tonumber(grants[i + 1]))
      return pack('<ddddddd', server_now, books.permits_of(grants[i]), interval, rate, 0, 0, score)
    end
  end
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
  books.settle(limiter, now, check)
  balance, oldest = limiter.balance, limiter.oldest
end

local taken, taken_text = total, all
if balance < total then
  -- Not for all: one after the other. A request that is alone takes nothing.
  local left, line_stands = balance, false
  for i = first_run, last_run, 2 do
    local asked, count = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
    local in_line = (i - first_run) / 2 < tonumber(runs_in_line)
    if asked <= rate and not (in_line and line_stands) then
      local granted = math.max(math.min(count, math.floor(left / asked)), 0)
      left = left - granted * asked
      line_stands = in_line and granted < count
    end
  end
  taken = balance - left
  if taken > 0 then
    taken_text = string.format('%d', taken)
    member = pack('<c0I', string.sub(member, 1, -5), taken)
  end
end
local reset = oldest and interval - now + oldest or interval

if limiter then
  books.take_from_oldest(limiter, limiter.excess)
end
if taken > 0 then
  -- Before the permits left are written: a full server refuses this one, and then those must stay.
  local score = given_now == '' and string.format('%d', now) or given_now
  if call('zadd', permits_key, 'nx', score, member) == 0 then
    -- A connection below this client sent the call twice.
    score = call('zscore', permits_key, member)
    return pack('<ddddddd', server_now, taken, interval, rate, 0, 0, math.floor(tonumber(score)))
  end
end

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
  -- A denial that found the keys as they should be leaves them alone.
  local time_to_live = (taken > 0 or gone > 0 or check or balance ~= stored) and call('pttl', name) or 0
  if time_to_live > 0 then
    call('pexpire', value_key, time_to_live)
    call('pexpire', permits_key, time_to_live)
  end
  if not check then
    return pack('<ddd', server_now, balance, reset)
  end
else
  books.write(limiter, taken)
  if taken > 0 or limiter.expired or limiter.excess > 0 or check or balance ~= limiter.value
      or limiter.keep_alive > 0 then
    books.renew(limiter)
  end
  counted = limiter.counted
end
local newest = check and call('zrange', permits_key, '-1', '-1', 'withscores')[2]
local ahead = newest and math.max(math.ceil(newest - now), 0) or 0
return pack('<dddddd', server_now, balance, reset, rate, ahead, counted)
