-- A log of the requests that were granted; each counts until the window has passed since.
--
-- KEYS    log
-- numbers 1  limit
--         2  window in ms
-- Returns 4  how many requests count
--         5  score of the newest; now where that is not ahead and all requests were granted
--         6  how many are ahead of now
--         7… for each run of which a request was denied, unless one of this call's own is the last that has to be over
--            before it fits: how many are newer than the one that is, and its score
-- Writes  a member for each unit of cost, with the time as its score, so that a peer which counts the members counts the
--         same; members of windows that have passed are removed; the log's time to live, two windows: a peer that sets none may
--         have added to it until then
--
-- A member that is written here holds the call's 16 random bytes and its number in the call, as a big-endian u32.

local LARGEST_ADD = 1000 -- members; a Lua stack holds some thousand arguments

local log = KEYS[1]
local limit, window = unpack_numbers('<dd', numbers)
local horizon = format('%d', now - window) -- requests up to here are over

local used = call('zcount', log, '(' .. horizon, '+inf')
local newest, ahead = now, 0
if used > 0 then
  ahead = call('zcount', log, '(' .. format('%d', now), '+inf')
  if ahead > 0 then
    newest = ceil(tonumber(call('zrevrange', log, '0', '0', 'withscores')[2]))
    if newest >= LARGEST then
      return redis.error_reply('BADSTATE a score of the log is not a time')
    end
  end
end
local room = limit - used

-- grant_runs.lua

if denied_cost and used > 0 and ahead == 0 then
  newest = ceil(tonumber(call('zrevrange', log, '0', '0', 'withscores')[2]))
end
-- Before it is written: from the newest back, the first one that may not stay.
local last_to_go, next_denied = '', 1
while denied_cost do
  local stay = limit - denied_cost
  local newer = stay < ahead and stay or stay - denied_taken -- what this call takes stands behind those ahead
  if stay < ahead or newer >= ahead then
    local place = format('%d', newer)
    local score = call('zrevrange', log, place, place, 'withscores')[2]
    last_to_go = last_to_go .. pack('<dd', newer, ceil(tonumber(score)))
  end
  denied_cost = more_denied and more_denied[next_denied]
  denied_taken = more_denied and more_denied[next_denied + 1]
  next_denied = next_denied + 2
end

if taken > 0 then
  local score = format('%d', now)
  if taken == 1 then
    call('zadd', log, score, random .. '\0\0\0\1')
  else
    for first = 1, taken, LARGEST_ADD do
      local members = {}
      for unit = first, min(first + LARGEST_ADD - 1, taken) do
        members[#members + 1] = score
        members[#members + 1] = random .. pack('>I4', unit)
      end
      call('zadd', log, unpack(members))
    end
  end
  call('zremrangebyscore', log, '-inf', horizon)
  call('pexpire', log, format('%d', 2 * window))
end
return pack('<dddddd', server_now, now, 0, used, newest, ahead) .. last_to_go
