-- Decides a list of requests, in order, as if each had come alone at the same time.
--
-- KEYS    name, value, value of the client, permits, permits of the client
-- ARGV    1  now in ms, or '' for the server's clock
--         2  deadline in ms of the server's clock: a call that arrives later takes nothing; '' for none
--         3  random bytes that name this call, made once however often it is sent
--         4  '1' where it was sent before
--         5  the rate at which this caller had the live grants summed lately, '' where it did not
--         6  how many of the runs stand in line: there the first denial denies all behind it
--         7… runs of equal requests: permits, count, permits, count, …
-- Returns an array of integers
--         1  server's clock in ms, 0 where it was not read
--         2  rate
--         3  permits left before the list; with it and the rate the caller works out each request's answer
--         4  ms until the first of the live grants before the list are back, the interval where there is none
--         5  by how many ms the newest grant is ahead of now
--         6  how many live grants were summed
--         7  score of the grant that an earlier sending made
--         5 and 6 only where the grants were looked through, 7 only where there is such a grant, and only 1 where
--         the call came after its deadline. Grants are scored with now
-- Errors  UNINITIALIZED, BADSTATE
-- Writes  one member for all that is granted, the permits left; grants that are over go; books that do not
--         balance are settled; the times to live. Nothing where every request is for more than the rate.

local call = redis.call
local name, value, client_value, permits, client_permits = unpack(KEYS)
local given_now, deadline, random, sent_before = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'
local summed_rate, runs_in_line, first_run = ARGV[5], ARGV[6], 7

local server_now = 0
if given_now == '' or deadline ~= '' then
  local time = call('time')
  server_now = time[1] * 1000 + math.floor(time[2] / 1000)
end
if deadline ~= '' and server_now > tonumber(deadline) then
  return { server_now }
end
local now = given_now == '' and server_now or tonumber(given_now)

local fields = call('hmget', name, 'rate', 'interval', 'type', 'keepAliveTime')
local value_key, permits_key = value, permits
local is_per_client = fields[3] == '1'
if is_per_client then
  value_key, permits_key = client_value, client_permits
end
local text = call('get', value_key)
local first = call('zrange', permits_key, '0', '0', 'withscores')

-- The common case first, without a function or a table of its own: all is there, and the books balance as far as
-- their numbers tell. What else there is, bookkeeping settles.
local rate, interval = tonumber(fields[1]), tonumber(fields[2])
local keeps_alive = fields[4] and fields[4] ~= '0'
local stored, oldest = tonumber(text), tonumber(first[2])
local check = summed_rate ~= fields[1]
local is_common = not (sent_before or check or keeps_alive) and rate and interval and stored and oldest
  and (is_per_client or fields[3] == '0')
  and rate % 1 == 0 and interval % 1 == 0 and stored % 1 == 0 and oldest % 1 == 0
  and interval >= 0 and stored >= 0 and stored <= rate and rate < LARGEST
local balance, over_until = stored, nil
if is_common and oldest <= now - interval then
  over_until = string.format('%d', now - interval)
  local over = call('zrangebyscore', permits_key, '-inf', over_until)
  for i = 1, #over do
    local member = over[i]
    if #member == 5 + (string.byte(member) or 0) then
      local a, b, c, d = string.byte(member, -4, -1)
      balance = balance + a + b * 256 + c * 65536 + d * 16777216
    end
  end
  local next = string.format('%d', #over)
  oldest = tonumber(call('zrange', permits_key, next, next, 'withscores')[2])
  if oldest then
    local number, room = call('zcard', permits_key) - #over, rate - balance
    is_common = number == room or (number > FEW and number < room)
  else
    balance = rate -- nothing is out, so everything is here
  end
end

local books, limiter
if not is_common then
  books = bookkeeping()
  local failure
  limiter, failure = books.open(name, value, client_value, permits, client_permits, fields, text)
  if failure then
    return failure
  end
  rate, interval = limiter.rate, limiter.interval
end

if sent_before then
  -- An earlier sending that got through left a member with these bytes. What it holds, used as the balance,
  -- leads the caller to the same answers.
  local grants = call('zrange', permits_key, 0, -1, 'withscores')
  local prefix = string.char(#random) .. random
  for i = 1, #grants, 2 do
    if string.sub(grants[i], 1, #prefix) == prefix and books.permits_of(grants[i]) then
      local score = math.floor(tonumber(grants[i + 1]))
      return { server_now, rate, books.permits_of(grants[i]), interval, 0, 0, score }
    end
  end
end

local total, any_fits = 0, false
for i = first_run, #ARGV, 2 do
  local asked = tonumber(ARGV[i])
  total = total + asked * ARGV[i + 1]
  any_fits = any_fits or asked <= rate
end
if not any_fits then
  return { server_now, rate, 0, interval }
end

if limiter then
  books.settle(limiter, now, check)
  balance, oldest = limiter.balance, limiter.oldest
end

local left = balance - total
if left < 0 then
  -- Not for all: one after the other.
  left = balance
  local line_stands = false
  for i = first_run, #ARGV, 2 do
    local asked, count = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
    local in_line = (i - first_run) / 2 < tonumber(runs_in_line)
    if asked <= rate and not (in_line and line_stands) then
      local granted = math.max(math.min(count, math.floor(left / asked)), 0)
      left = left - granted * asked
      line_stands = in_line and granted < count
    end
  end
end
local taken = balance - left
local reset = oldest and interval - now + oldest or interval

if limiter then
  books.take_from_oldest(limiter, limiter.excess)
end
if taken > 0 then
  -- Before the permits left are written: a full server refuses this one, and then those must stay.
  local member = struct.pack('<Bc0I', #random, random, taken)
  if call('zadd', permits_key, 'nx', string.format('%d', now), member) == 0 then
    -- A connection below this client sent the call twice.
    local score = call('zscore', permits_key, member)
    return { server_now, rate, taken, interval, 0, 0, math.floor(tonumber(score)) }
  end
end

if not limiter then
  if balance ~= stored then
    call('set', value_key, string.format('%d', left))
  elseif taken > 0 then
    call('decrby', value_key, string.format('%d', taken))
  end
  if over_until then
    call('zremrangebyscore', permits_key, '-inf', over_until)
  end
  local time_to_live = call('pttl', name)
  if time_to_live > 0 then
    call('pexpire', value_key, time_to_live)
    call('pexpire', permits_key, time_to_live)
  end
  return { server_now, rate, balance, reset }
end

books.write(limiter, taken)
books.renew(limiter)
local newest = check and call('zrange', permits_key, -1, -1, 'withscores')[2]
local ahead = newest and math.max(math.ceil(tonumber(newest) - now), 0) or 0
return { server_now, rate, balance, reset, ahead, limiter.counted }
