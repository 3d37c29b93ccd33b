-- Decides one request by several limiters: granted by all of them, or charged to none.
--
-- KEYS    the keys of the limiters, one limiter after another; the last of each is its lock where that is looked at
-- ARGV    1  little-endian doubles in one string
--            1  deadline in ms of the server's clock: a call that arrives later does nothing; NaN for none
--            2  now in ms, NaN for the server's clock
--         2  random bytes that name this call
--         3… for each limiter: its algorithm; little-endian doubles in one string: its penalty in ms (0 where only peers
--            lock, NaN where no lock is looked at), how many keys it has without the lock, the request's cost; the
--            algorithm's numbers, likewise
-- Returns an array with a string for each limiter, as one_target.lua returns it, with the state also where the target was locked
--         out; of shared_rate that is the limit, 1 where the request fits, else 0, what remains, ms until it is worth asking again, ms until all is back
--         Only one, with the server's clock alone, where the call came after its deadline. Only one, with the server's clock and
--         now, where nothing was decided yet: so many grants have expired that their permits are counted in several calls. Ask again
-- Errors  BADSTATE, UNINITIALIZED
-- Writes  what the algorithms write; a lock, for the time of the penalty, where its limiter denied the request

local deadline, given_now = unpack_numbers('<dd', ARGV[1])
local random = ARGV[2]

-- time.lua
if server_now > deadline then
  return { pack('<d', server_now) }
end

local algorithms = {}

local function digits(number)
  return format('%d', number)
end

-- algorithms

local shared_rate = algorithms.shared_rate

algorithms.shared_rate = function(keys, numbers, cost)
  local limiter, failure = shared_rate(keys, { unpack_numbers('<ddddd', numbers) }, now, random, cost)
  if failure then
    return failure
  elseif limiter.is_unfinished then
    return { is_unfinished = true, limit = 0, room = 0 }
  end
  local granted, remaining, retry_after, reset = limiter.ask(cost)
  return {
    limit = limiter.limit,
    room = granted and cost or cost - 1,
    finish = function(taken, denied_cost)
      if taken > 0 then
        limiter.charge(taken)
      elseif denied_cost then
        limiter.deny()
      end
      if taken > 0 or denied_cost then
        limiter.write()
      end
      return pack('<dddddddd', server_now, now, 0, limiter.limit, granted and 1 or 0, remaining, retry_after, reset)
    end,
  }
end

-- All limiters are read before any is written, but for expired grants, which shared_rate.lua may remove.
local limiters, next_key, all_grant, is_unfinished = {}, 1, true, false
for place = 1, (#ARGV - 2) / 3 do
  local penalty, key_count, cost = unpack_numbers('<ddd', ARGV[3 * place + 1])
  local keys = {}
  for i = 1, key_count do
    keys[i] = KEYS[next_key]
    next_key = next_key + 1
  end
  local limiter = algorithms[ARGV[3 * place]](keys, ARGV[3 * place + 2], cost)
  if limiter.err then
    return limiter
  end
  is_unfinished = is_unfinished or limiter.is_unfinished
  limiter.cost, limiter.penalty, limiter.locked_for = cost, penalty, 0
  if penalty == penalty then
    local lock = KEYS[next_key]
    next_key = next_key + 1
    -- lock.lua
    limiter.lock, limiter.locked_for, limiter.sets_lock = lock, locked_for, sets_lock
  end
  local can_be = limiter.locked_for == 0 and cost <= limiter.limit
  local grants = can_be and cost <= limiter.room
  limiter.denies = can_be and not grants
  all_grant = all_grant and grants
  limiters[place] = limiter
end

if is_unfinished then
  return { pack('<dd', server_now, now) }
end
local answer = {}
for place, limiter in ipairs(limiters) do
  local told = limiter.finish(all_grant and limiter.cost or 0, limiter.denies and limiter.cost or nil, 0)
  if limiter.locked_for > 0 then
    told = string.sub(told, 1, 16) .. pack('<d', limiter.locked_for) .. string.sub(told, 25)
  end
  answer[place] = told
  if limiter.sets_lock or limiter.denies and limiter.penalty > 0 then
    call('set', limiter.lock, '1', 'px', format('%d', limiter.penalty))
  end
end
return answer
