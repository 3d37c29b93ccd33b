-- Decides a list of requests on one target, in order, as if each had come alone at the same time. The algorithm follows.
--
-- KEYS    the algorithm's; behind them the target's lock where that is looked at
-- ARGV    1  little-endian doubles in one string, which costs less than an argument for each
--            1  deadline in ms of the server's clock: a call that arrives later does nothing; NaN for none
--            2  now in ms, NaN for the server's clock
--            3  penalty in ms, 0 where only peers lock, NaN where no lock is looked at
--            4  cost of the first request
--            5  how many requests of this cost come first
--         2  the algorithm's numbers, likewise
--         3  the runs of equal requests that follow, a cost and a count each, likewise; left out with all behind it where
--            there is none
--         4  random bytes that name this call, for an algorithm that writes them
-- Returns little-endian doubles in one string
--         1  server's clock in ms, 0 where it was not read
--         2  now in ms
--         3  for how many ms the target was locked out, 0 where it was not
--         4… the state found, as the algorithm tells it; left out where the target was locked out
--         Only 1 where the call came after its deadline
-- Errors  BADSTATE
-- Writes  what the algorithm writes; the lock, for the time of the penalty, where a request was denied

local deadline, given_now, penalty, cost, times = unpack_numbers('<ddddd', ARGV[1])
local numbers, more_runs, random = ARGV[2], ARGV[3], ARGV[4]

-- time.lua
if server_now > deadline then
  return pack('<d', server_now)
end

if penalty == penalty then
  local lock = KEYS[#KEYS]
  -- lock.lua
  if sets_lock then
    call('set', lock, '1', 'px', format('%d', penalty))
  end
  if locked_for > 0 then
    return pack('<ddd', server_now, now, locked_for)
  end
end
