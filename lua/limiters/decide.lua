-- Decides a list of requests against one or several limiters, in order, as if each request had come alone at the same
-- time: granted by all of them, or charged to none.
--
-- KEYS    the keys of the limiters, one limiter after another; the last of each is its lock where that is looked at
-- ARGV    1  now in ms, or '' for the server's clock
--         2  deadline in ms of the server's clock: a call that arrives later does nothing; '' for none
--         3  random bytes that name this call
--         4  how many limiters
--         5… for each limiter: its algorithm, its penalty in ms (0 where only peers lock, '' where no lock is looked at),
--            how many keys it has without the lock, how many numbers, and these
--         …  for each request: its cost at each limiter
-- Returns an array of integers
--         1  server's clock in ms, 0 where it was not read
--         2  the time in ms that grants are scored with
--         3… for each request and limiter: 1 granted, 0 denied, -1 locked out or -2 never (the cost is more than the
--            limit); the limit; what remains; ms until it is worth asking again; ms until all is back; ms that a granted
--            request has to wait. A limiter that would have granted, where another did not, has 1 too: nothing was
--            charged
--         Only 1 where the call came after its deadline. Only 1 and 2 where nothing was decided yet: so many grants have
--         expired that their permits are counted in several calls. Ask again
-- Errors  BADSTATE, UNINITIALIZED
-- Writes  what the algorithms write; a lock, for the time of the penalty, where a request was denied

local given_now, deadline, random = ARGV[1], ARGV[2], ARGV[3]
local limiter_count, next_argument = tonumber(ARGV[4]), 5

local server_now = 0
if given_now == '' or deadline ~= '' then
  local time = redis.call('time')
  server_now = time[1] * 1000 + math.floor(time[2] / 1000)
end
if deadline ~= '' and server_now > tonumber(deadline) then
  return { server_now }
end
local now = given_now == '' and server_now or tonumber(given_now)

local first_cost = next_argument
for _ = 1, limiter_count do
  first_cost = first_cost + 4 + ARGV[first_cost + 3]
end
cost_of_all = function(place)
  local all = 0
  for i = first_cost + place - 1, #ARGV, limiter_count do
    all = all + ARGV[i]
  end
  return all
end

-- All limiters are read before any is written.
local limiters, next_key, is_unfinished = {}, 1, false
for place = 1, limiter_count do
  local algorithm, penalty = ARGV[next_argument], tonumber(ARGV[next_argument + 1])
  local key_count, number_count = tonumber(ARGV[next_argument + 2]), tonumber(ARGV[next_argument + 3])
  next_argument = next_argument + 4
  local keys, numbers = {}, {}
  for i = 1, key_count do
    keys[i] = KEYS[next_key]
    next_key = next_key + 1
  end
  for i = 1, number_count do
    numbers[i] = tonumber(ARGV[next_argument])
    next_argument = next_argument + 1
  end
  local limiter, failure = algorithms[algorithm](keys, numbers, now, random, place)
  if not limiter then
    return failure
  end
  is_unfinished = is_unfinished or limiter.is_unfinished
  if penalty then
    limiter.lock = KEYS[next_key]
    next_key = next_key + 1
    limiter.penalty = penalty > 0 and penalty or nil
    local left = redis.call('pttl', limiter.lock)
    if left ~= -2 and redis.call('type', limiter.lock).ok ~= 'string' then
      return select(2, bad_state('the lock is no string'))
    end
    if left == -1 and penalty > 0 then
      -- Nobody would ever unlock it.
      limiter.lock_now = penalty
      left = penalty
    end
    if left ~= -2 and left ~= 0 then
      -- In its last millisecond the server still has the lock, but its time is over.
      limiter.locked_for = math.max(left, 1)
    end
  end
  limiters[place] = limiter
end

local answer = { server_now, now }
local size = 2
if is_unfinished then
  return answer
end

-- One limiter's answer to a request; whether it grants it.
local function ask(limiter, cost)
  local outcome, remaining, retry_after, reset, delay = 0, 0, 0, 0, 0
  if limiter.locked_for then
    outcome, retry_after, reset = -1, limiter.locked_for, limiter.locked_for
  elseif cost > limiter.limit then
    outcome = -2
  else
    local granted
    granted, remaining, retry_after, reset, delay = limiter.ask(cost)
    if granted then
      outcome, retry_after = 1, 0
    else
      local penalty = limiter.penalty or 0
      retry_after, reset, delay = math.max(retry_after, penalty, 1), math.max(reset, penalty), 0
    end
  end
  answer[size + 1], answer[size + 2], answer[size + 3] = outcome, limiter.limit, remaining
  answer[size + 4], answer[size + 5], answer[size + 6] = retry_after, reset, delay
  size = size + 6
  return outcome
end

while next_argument <= #ARGV do
  local costs, outcomes, all = {}, {}, true
  for place = 1, limiter_count do
    costs[place] = tonumber(ARGV[next_argument])
    next_argument = next_argument + 1
    outcomes[place] = ask(limiters[place], costs[place])
    all = all and outcomes[place] == 1
  end
  for place, limiter in ipairs(limiters) do
    if all then
      limiter.charge(costs[place])
      limiter.changed = true
    elseif outcomes[place] == 0 then
      if limiter.deny then
        limiter.deny()
        limiter.changed = true
      end
      if limiter.penalty then
        limiter.lock_now, limiter.locked_for = limiter.penalty, limiter.penalty
      end
    end
  end
end

for _, limiter in ipairs(limiters) do
  if limiter.changed then
    limiter.write()
  end
  if limiter.lock_now then
    redis.call('set', limiter.lock, '1', 'px', digits(limiter.lock_now))
  end
end
return answer
