-- Decides one request by several limiters: all of them grant it, or none is charged. Or returns
-- what that decision would be, resets the limiters, or gives back what they were charged.
--
-- KEYS    the keys of each limiter in turn, with its lock last if ARGV has a penalty for it
-- ARGV    1  little-endian doubles in one string
--            1  deadline in ms of the server's clock: later the call does nothing; NaN for none
--            2  now in ms, NaN for the server's clock
--         2  the call id, 16 random bytes. Or `peek`: the decision is returned and nothing is
--            written, not even what a denial leaves. Or `reset`: nothing is decided. Or `refund`
--            and the id of the call that was charged: nothing is decided; not for shared_rate,
--            which has refund.lua
--         3… for each limiter, all but the first as doubles too
--            its algorithm: the name of a file in policies/, or 'shared_rate'
--            its penalty in ms, 0 if only peers set the lock, NaN if the lock is not read; its
--            number of keys without the lock; the cost of the request; for a refund the mark of the
--            charge, as the file in refunds/ says
--            the algorithm's numbers
-- Returns an array with a string for each limiter, as shared/one_target.lua returns it, but with
--         the state also if the target is locked. The state of a shared_rate is the limit; 1 if the
--         request fits, else 0; the available permits; ms until any is available, if none is left;
--         ms until no permit is in use; the interval in ms; the type; the keep alive in ms; ms
--         until the request fits, 0 if it does.
--         After the deadline an array of one string with the server's clock alone. If nothing was
--         decided, because more grants have expired than one call removes, of one string with the
--         server's clock and now: send the call again. Of a peek a string for each limiter follows:
--         the bytes to append to its numbers in the next call, which passes the now of this one.
--         For a reset the state of each limiter is how many of its keys were deleted, for a refund
--         how much was given back
-- Errors  BADSTATE, UNINITIALIZED and those of Redis, each with `limiter`, the place of the limiter
--         that it is about, from 1, and a colon after its code
-- Writes  what the algorithms write; for the time of the penalty, the lock of a limiter that denied
--         the request. For `peek` nothing. For `reset` it deletes the keys of each limiter and its
--         lock; of a shared_rate the value and the permits of its type. For a refund what the files
--         in refunds/ write

--! include shared/limits.lua
--! include shared/policy.lua
--! include shared/whole.lua
--! include shared/finite.lua
--! include shared/window.lua

local deadline, given_now = unpack_numbers('<dd', ARGV[1])
local call_id = ARGV[2]
local peeks, resets = call_id == 'peek', call_id == 'reset'
-- For a refund, the id of the call that was charged.
local charged_id = string.sub(call_id, 1, 6) == 'refund' and #call_id == 22
  and string.sub(call_id, 7)

--! include shared/time.lua
if server_now > deadline then
  return { pack('<d', server_now) }
end

--! include shared/shared_rate.lua

-- Each function reads its limiter and returns the limit, the room, and a function that writes and
-- returns the state.
local algorithms = { shared_rate = shared_rate }

local read_keys -- nil: an algorithm that reads further keys of a target has its own

--! each policy NAME
algorithms.NAME = function(KEYS, numbers, cost, mark)
  --! include policies/NAME.lua read
  if charged_id then
    --! include refunds/NAME.lua
    return { limit = 0, room = 0, given_back = given_back }
  end
  local function finish(taken, denied_cost, denied_taken, more_denied)
    --! include policies/NAME.lua state
    if peeks then
      return state
    end
    --! include policies/NAME.lua write
  end
  return { limit = limit, room = room, read_keys = read_keys, finish = finish }
end

--! end
-- Every limiter is read before any is written, except for expired grants, which shared_rate may
-- remove first. Each limiter may always remove a few; beside these a whole page remains for those
-- whose permits are needed, however many limiters come before them.
local count = (#ARGV - 2) / 3
most_others = floor(most_others / count)
always_removed = ALWAYS_REMOVED_JOINTLY
to_remove = MOST_READ + ALWAYS_REMOVED_JOINTLY * (count - 1)
local limiters, next_key, all_grant, is_unfinished = {}, 1, true, false
local function read_limiter(place)
  local penalty, key_count, cost = unpack_numbers('<ddd', ARGV[3 * place + 1])
  local keys = {}
  for i = 1, key_count do
    keys[i] = KEYS[next_key]
    next_key = next_key + 1
  end
  local mark = charged_id and unpack_numbers('<d', ARGV[3 * place + 1], 25) -- the fourth double
  local limiter = algorithms[ARGV[3 * place]](keys, ARGV[3 * place + 2], cost, mark)
  if limiter.err then
    return limiter
  end
  limiter.keys = limiter.keys or keys
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
for place = 1, count do
  local has_run, limiter = pcall(read_limiter, place)
  if not has_run then
    -- Before Redis 7 a failed command raises the text of its error, after the line of the script.
    limiter = { err = type(limiter) == 'table' and limiter.err or 'ERR ' .. limiter }
  end
  if limiter.err then
    local prefix = '%0 limiter ' .. format('%d', place) .. ':'
    return redis.error_reply((string.gsub(limiter.err, '^%S+', prefix)))
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
    for _, keys in ipairs({ limiter.keys, limiter.read_keys or {}, { limiter.lock } }) do
      deleted = deleted + (#keys > 0 and call('unlink', unpack(keys)) or 0)
    end
    replies[place] = pack('<dddd', server_now, now, 0, deleted)
  elseif charged_id then
    replies[place] = pack('<dddd', server_now, now, 0, limiter.given_back)
  else
    local taken = all_grant and limiter.cost or 0
    local reply = limiter.finish(taken, limiter.denies and limiter.cost or nil, 0)
    if limiter.locked_for > 0 then
      -- In place of the third double, which is 0.
      reply = string.sub(reply, 1, 16) .. pack('<d', limiter.locked_for) .. string.sub(reply, 25)
    end
    replies[place] = reply
    if not peeks and (limiter.sets_lock or limiter.denies and limiter.penalty > 0) then
      call('set', limiter.lock, '1', 'px', format('%d', limiter.penalty))
    end
  end
end
return replies
