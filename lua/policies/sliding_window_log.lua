-- A log of the granted requests; each counts until the window has passed since.
--
-- KEYS    log
-- numbers 1  limit
--         2  window in ms
-- Returns 4  how many members count
--         5  score of the newest; now if there is none
--         6  how many are ahead of now
--         7… for each run with a denied request: how many members are newer than the one whose
--            expiry makes room for the request, and the score of that one; left out if it is one of
--            this call's own. If the call leaves nothing, and denies no request that costs 1, the
--            same for a further request that costs 1
-- Writes  a member for each unit of cost, with the time as its score: a peer that counts the live
--         members counts the same. For each of them removes up to three members that have expired,
--         the oldest first; or up to 500 that are further ahead than the window. The log's time to
--         live: two windows, in which a peer that sets none may add to it; or longer, as
--         shared/life.lua says: until the newest has expired
--
-- A member is the 16 bytes of the call id and the unit's number within the call, from 1, as a
-- big-endian u32. All requests of a call together cost at most 500: the call adds and removes at
-- most 2,000 members.

--! include shared/limits.lua
--! include shared/policy.lua
--! include shared/one_target.lua

--! part read
-- Expired members that each new one removes at most. LARGEST_COST in src/policies follows from it.
local REMOVED = 3
-- Members too far ahead that a call removes at most, unless it may remove more expired ones.
local MOST_FAR = 500

local log = KEYS[1]
local limit, window = unpack_numbers('<dd', numbers)
local horizon = format('%d', now - window) -- members with at most this score have expired

local used = call('zcount', log, '(' .. horizon, '+inf')
local newest_score
local ahead, far = 0, 0
if used > 0 then
  newest_score = ceil(tonumber(call('zrevrange', log, '0', '0', 'withscores')[2]))
  if newest_score >= LARGEST then
    return redis.error_reply('BADSTATE a score of the log is not a time')
  end
  if newest_score > now + window then
    -- Only a wrong clock can have written scores that are further ahead than the window: these
    -- members do not count.
    far = call('zcount', log, '(' .. format('%d', now + window), '+inf')
    used = used - far
    local place = format('%d', far)
    newest_score = used > 0
      and ceil(tonumber(call('zrevrange', log, place, place, 'withscores')[2])) or nil
  end
  if newest_score and newest_score > now then
    ahead = call('zcount', log, '(' .. format('%d', now), format('%d', now + window))
  end
end
local room = limit - used
--! end

--! include shared/grant_runs.lua

--! part state
-- The fields from 7 on.
local expiries = ''
local next_denied, is_full = 1, taken >= room
while denied_cost or is_full do
  if not denied_cost then
    denied_cost, denied_taken = 1, taken
  end
  if denied_cost == 1 then
    is_full = false -- a further request for 1 waits for the same member
  end
  local stay = limit - denied_cost -- how many members may stay
  -- What this call takes is older than the members ahead of now.
  local newer = stay < ahead and stay or stay - denied_taken
  if stay < ahead or newer >= ahead then
    local place = format('%d', far + newer)
    local score = call('zrevrange', log, place, place, 'withscores')[2]
    expiries = expiries .. pack('<dd', newer, ceil(tonumber(score)))
  end
  denied_cost = more_denied and more_denied[next_denied]
  denied_taken = more_denied and more_denied[next_denied + 1]
  next_denied = next_denied + 2
end
local state = pack('<dddddd', server_now, now, 0, used, newest_score or now, ahead) .. expiries
--! end

--! part write
local life_key, key_exists, gives_ttl = log, true, taken > 0
local needed_ttl = newest_score and newest_score + window - now or 0
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
  local expired, may_remove = call('zcard', log) - used - taken - far, REMOVED * taken
  if far > 0 then
    local removed = min(far, max(may_remove, MOST_FAR))
    call('zremrangebyrank', log, format('%d', -removed), '-1')
    may_remove = may_remove - removed
  end
  if expired > 0 and may_remove > 0 then
    call('zremrangebyrank', log, '0', format('%d', min(expired, may_remove) - 1))
  end
  needed_ttl = max(needed_ttl, 2 * window)
end
local extended_ttl = needed_ttl
--! include shared/life.lua
return state
--! end
