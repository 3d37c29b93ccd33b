-- A log of the granted requests; each counts until the window has passed since.
--
-- KEYS    log
-- numbers 1  limit
--         2  window in ms
-- Returns 4  how many members count
--         5  score of the newest; now if there is none
--         6  how many are ahead of now
--         7… for each run with a denied request: the last member that has to expire before the request fits, as the number
--            of members newer than it, and its score; left out if that member is one of this call's own. If the call leaves
--            nothing, and denies no request that costs 1, the same for a further one
-- Writes  a member for each unit of cost, with the time as its score, so that a peer that counts the live members counts
--         the same; for each of them, removes up to three that have expired, the oldest first, or up to 500 that are further
--         ahead than the window; the log's time to live, two windows, in which a peer that sets none may have added to it. As shared/life.lua says, it is never shortened, and
--         lasts until the newest has expired
--
-- A member is the 16 bytes of the call id and the unit's number within the call, from 1, as a big-endian u32. The costs of
-- all requests of a call are at most 500 together, so that it adds and removes at most 2,000 members.

--! include shared/limits.lua
--! include shared/policy.lua
--! include shared/one_target.lua

--! part read
local REMOVED = 3 -- expired members that each new one removes at most. LARGEST_COST in src/policies belongs to it
local MOST_FAR = 500 -- members that are too far ahead, which a call removes at most; or as many as expired ones, if these are more

local log = KEYS[1]
local limit, window = unpack_numbers('<dd', numbers)
local horizon = format('%d', now - window) -- members with at most this score have expired

local used = call('zcount', log, '(' .. horizon, '+inf')
local last_score, ahead, far = nil, 0, 0
if used > 0 then
  last_score = ceil(tonumber(call('zrevrange', log, '0', '0', 'withscores')[2]))
  if last_score >= LARGEST then
    return redis.error_reply('BADSTATE a score of the log is not a time')
  end
  if last_score > now + window then
    -- Only a clock that was wrong can have written a score that is further ahead than the window: these do not count.
    far = call('zcount', log, '(' .. format('%d', now + window), '+inf')
    used = used - far
    local newest = format('%d', far)
    last_score = used > 0 and ceil(tonumber(call('zrevrange', log, newest, newest, 'withscores')[2])) or nil
  end
  if last_score and last_score > now then
    ahead = call('zcount', log, '(' .. format('%d', now), format('%d', now + window))
  end
end
local room = limit - used
--! end

--! include shared/grant_runs.lua

--! part state
-- Counted from the newest, the last member that has to expire.
local last_to_go, next_denied, is_full = '', 1, taken >= room
while denied_cost or is_full do
  if not denied_cost then
    denied_cost, denied_taken = 1, taken
  end
  if denied_cost == 1 then
    is_full = false -- the member that a further request for 1 waits for is this one
  end
  local stay = limit - denied_cost
  local newer = stay < ahead and stay or stay - denied_taken -- what this call takes is older than those ahead of now
  if stay < ahead or newer >= ahead then
    local place = format('%d', far + newer)
    local score = call('zrevrange', log, place, place, 'withscores')[2]
    last_to_go = last_to_go .. pack('<dd', newer, ceil(tonumber(score)))
  end
  denied_cost = more_denied and more_denied[next_denied]
  denied_taken = more_denied and more_denied[next_denied + 1]
  next_denied = next_denied + 2
end
local state = pack('<dddddd', server_now, now, 0, used, last_score or now, ahead) .. last_to_go
--! end

--! part write
local lasting, is_there, is_renewed = log, true, taken > 0
local needed = last_score and last_score + window - now or 0
if taken > 0 then
  local score = format('%d', now)
  if taken == 1 then
    call('zadd', log, score, call_id .. '\0\0\0\1')
  else
    local members, place = {}, 1 -- counted here: Lua finds a table's length by searching
    for unit = 1, taken do
      members[place] = score
      members[place + 1] = call_id .. pack('>I4', unit)
      place = place + 2
    end
    call('zadd', log, unpack(members))
  end
  local expired, removed = call('zcard', log) - used - taken - far, REMOVED * taken
  if far > 0 then
    local newest = min(far, max(removed, MOST_FAR))
    call('zremrangebyrank', log, format('%d', -newest), '-1')
    removed = removed - newest
  end
  if expired > 0 and removed > 0 then
    call('zremrangebyrank', log, '0', format('%d', min(expired, removed) - 1))
  end
  needed = max(needed, 2 * window)
end
local extended = needed
--! include shared/life.lua
return state
--! end
