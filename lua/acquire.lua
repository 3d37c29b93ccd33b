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
--         2  score of the grants made
--         3  rate
--         4  interval in ms
--         5  permits left before the list; with it and the rate the caller works out each request's answer
--         6  score of the oldest live grant before the list, -1 where there is none
--         7  by how many ms the newest grant is ahead of now, 0 where it is not or was not looked at
--         8  how many live grants were summed
--         or only 1, where the call came after its deadline
-- Errors  UNINITIALIZED, BADSTATE
-- Writes  one member for all that is granted, the permits left; grants that are over go; books that do not
--         balance are settled; the times to live. Nothing where every request is for more than the rate.

local name, value, client_value, permits, client_permits = unpack(KEYS)
local given_now, deadline, random, sent_before = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'
local summed_rate, runs_in_line, first_run = ARGV[5], tonumber(ARGV[6]), 7

local server_now = 0
if given_now == '' or deadline ~= '' then
  server_now = server_time()
end
if deadline ~= '' and server_now > tonumber(deadline) then
  return { server_now }
end
local now = given_now == '' and server_now or tonumber(given_now)

local limiter, failure = open(name, value, client_value, permits, client_permits)
if failure then
  return failure
end
local rate = limiter.rate

if sent_before then
  -- An earlier sending that got through left a member with these bytes. What it holds, used as the balance,
  -- leads the caller to the same answers.
  local grants = redis.call('zrange', limiter.permits_key, 0, -1, 'withscores')
  local prefix = string.char(#random) .. random
  for i = 1, #grants, 2 do
    if string.sub(grants[i], 1, #prefix) == prefix and permits_of(grants[i]) then
      local score = math.floor(tonumber(grants[i + 1]))
      return { server_now, score, rate, limiter.interval, permits_of(grants[i]), -1, 0, 0 }
    end
  end
end

local any_fits = false
for i = first_run, #ARGV, 2 do
  any_fits = any_fits or tonumber(ARGV[i]) <= rate
end
if not any_fits then
  return { server_now, now, rate, limiter.interval, 0, -1, 0, 0 }
end

local check = tonumber(summed_rate) ~= rate
settle(limiter, now, check)

local left = limiter.balance
local line_stands = false
for i = first_run, #ARGV, 2 do
  local asked, count = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  local in_line = (i - first_run) / 2 < runs_in_line
  if asked <= rate and not (in_line and line_stands) then
    local granted = math.min(count, math.floor(left / asked))
    left = left - math.max(granted, 0) * asked
    line_stands = in_line and granted < count
  end
end
local taken = limiter.balance - left

take_from_oldest(limiter, limiter.excess)
if taken > 0 then
  -- Before the permits left are written: a full server refuses this one, and then those must stay.
  local member = pack(random, taken)
  if redis.call('zadd', limiter.permits_key, 'nx', digits(now), member) == 0 then
    -- A connection below this client sent the call twice.
    local score = redis.call('zscore', limiter.permits_key, member)
    return { server_now, math.floor(tonumber(score)), rate, limiter.interval, taken, -1, 0, 0 }
  end
end
write(limiter, taken)
renew(limiter)

local ahead = 0
if check then
  local newest = redis.call('zrange', limiter.permits_key, -1, -1, 'withscores')
  if newest[1] then
    ahead = math.max(math.ceil(tonumber(newest[2]) - now), 0)
  end
end
return {
  server_now, now, rate, limiter.interval, limiter.balance, limiter.oldest or -1, ahead, limiter.counted,
}
