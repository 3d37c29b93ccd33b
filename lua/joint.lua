-- Decides one request by several limiters: granted by all of them, or charged to none. Or says what that decision would be,
-- resets the limiters, or gives back what they have charged.
--
-- KEYS    the keys of each limiter in turn, with its lock last if ARGV has a penalty for it
-- ARGV    1  little-endian doubles in one string
--            1  deadline in ms of the server's clock, after which the call does nothing; NaN for none
--            2  now in ms, NaN for the server's clock
--         2  the call id, 16 random bytes. Or `peek`: the decision is returned and nothing is written, not even what a
--            denial leaves. Or `reset`: nothing is decided. Or `refund` and the id of the call that was charged: nothing
--            is decided; without shared_rate, which has refund.lua
--         3… for each limiter
--            its algorithm: the name of a file in policies/, or 'shared_rate'
--            little-endian doubles in one string: its penalty in ms, 0 if only peers set the lock, NaN if the lock is
--            not read; its number of keys without the lock; the cost of the request; for a refund the mark of the charge,
--            as the file in refunds/ says
--            the algorithm's numbers, likewise
-- Returns an array with a string for each limiter, as shared/one_target.lua returns it, and with the state of a locked
--         target too. For shared_rate the state is the limit, 1 if the request fits, else 0, the available permits, ms
--         until any permit is available where none is left, ms until no permit is in use, the interval in ms, the type, the
--         keep alive in ms, ms until the request fits, 0 if it does.
--         An array of one string with the server's clock alone after the deadline; with the server's clock and now if
--         nothing was decided, because more grants have expired than one call removes: send the call again.
--         For a peek this string is followed by one for each limiter, the bytes to append to the limiter's numbers in the next
--         call, which passes the now of this one.
--         For a reset, the state of each limiter is the number of its keys that were deleted, for a refund how much was
--         given back
-- Errors  BADSTATE, UNINITIALIZED and those of Redis. Behind the code stand the word `limiter`, the place of the limiter
--         that the error is about, from 1, and a colon
-- Writes  what the algorithms write; a lock, for the time of the penalty, if its limiter denied the request. For `peek`
--         nothing. For `reset` it deletes the keys of each limiter and its lock; of a shared_rate the value and the permits
--         that its type uses. For a refund what the files in refunds/ write

--! include shared/limits.lua
--! include shared/policy.lua
--! include shared/whole.lua
--! include shared/finite.lua
--! include shared/window.lua

local deadline, given_now = unpack_numbers('<dd', ARGV[1])
local call_id = ARGV[2]
local peeks, resets, charged_by = call_id == 'peek', call_id == 'reset', string.sub(call_id, 1, 6) == 'refund'
    and #call_id == 22 and string.sub(call_id, 7)

--! include shared/time.lua
if server_now > deadline then
  return { pack('<d', server_now) }
end

--! include shared/shared_rate.lua

-- Each function reads its limiter and returns the limit, the room, and a function that writes and
-- returns the state.
local algorithms = { shared_rate = shared_rate }

local names -- nil, but in an algorithm that finds further keys of a target

--! each policy NAME
algorithms.NAME = function(KEYS, numbers, cost, mark)
  --! include policies/NAME.lua read
  if charged_by then
    --! include refunds/NAME.lua
    return { limit = 0, room = 0, back = back }
  end
  return { limit = limit, room = room, others = names, finish = function(taken, denied_cost, denied_taken, more_denied)
    --! include policies/NAME.lua state
    if peeks then
      return state
    end
    --! include policies/NAME.lua write
  end }
end

--! end
-- Every limiter is read before any is written, except for expired grants, which shared_rate may remove first. What each
-- limiter loses in any case leaves a page for those whose permits are needed, however many limiters come before them.
local number = (#ARGV - 2) / 3
most_others = floor(most_others / number)
always_removed, to_remove = ALWAYS_REMOVED_JOINTLY, MOST_READ + ALWAYS_REMOVED_JOINTLY * (number - 1)
local limiters, next_key, all_grant, is_unfinished = {}, 1, true, false
local function open(place)
  local penalty, key_count, cost = unpack_numbers('<ddd', ARGV[3 * place + 1])
  local keys = {}
  for i = 1, key_count do
    keys[i] = KEYS[next_key]
    next_key = next_key + 1
  end
  local mark = charged_by and unpack_numbers('<d', ARGV[3 * place + 1], 25)
  local limiter = algorithms[ARGV[3 * place]](keys, ARGV[3 * place + 2], cost, mark)
  if limiter.err then
    return limiter
  end
  limiter.in_use = limiter.in_use or keys
  is_unfinished = is_unfinished or limiter.is_unfinished
  limiter.cost, limiter.penalty, limiter.locked_for = cost, penalty, 0
  if penalty == penalty then
    local lock = KEYS[next_key]
    next_key = next_key + 1
    --! include shared/lock.lua
    limiter.lock, limiter.locked_for, limiter.sets_lock = lock, locked_for, sets_lock
  end
  local may_grant = limiter.locked_for == 0 and cost <= limiter.limit
  local grants = may_grant and cost <= limiter.room
  limiter.denies = may_grant and not grants
  all_grant = all_grant and grants
  return limiter
end
for place = 1, number do
  local has_run, limiter = pcall(open, place)
  if not has_run then
    -- Before Redis 7 a failed command raises the text of its error, preceded by the line of the script.
    limiter = { err = type(limiter) == 'table' and limiter.err or 'ERR ' .. limiter }
  end
  if limiter.err then
    return redis.error_reply((string.gsub(limiter.err, '^%S+', '%0 limiter ' .. format('%d', place) .. ':')))
  end
  limiters[place] = limiter
end

local replies = {}
if is_unfinished then
  replies[1] = pack('<dd', server_now, now)
  for place, limiter in ipairs(peeks and limiters or {}) do
    replies[place + 1] = limiter.progress or ''
  end
  return replies
end
for place, limiter in ipairs(limiters) do
  if resets then
    local deleted = 0
    for _, names in ipairs({ limiter.in_use, limiter.others or {}, { limiter.lock } }) do
      deleted = deleted + (#names > 0 and call('unlink', unpack(names)) or 0)
    end
    replies[place] = pack('<dddd', server_now, now, 0, deleted)
  elseif charged_by then
    replies[place] = pack('<dddd', server_now, now, 0, limiter.back)
  else
    local state = limiter.finish(all_grant and limiter.cost or 0, limiter.denies and limiter.cost or nil, 0)
    if limiter.locked_for > 0 then
      state = string.sub(state, 1, 16) .. pack('<d', limiter.locked_for) .. string.sub(state, 25)
    end
    replies[place] = state
    if not peeks and (limiter.sets_lock or limiter.denies and limiter.penalty > 0) then
      call('set', limiter.lock, '1', 'px', format('%d', limiter.penalty))
    end
  end
end
return replies
