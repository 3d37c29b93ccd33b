-- Starts a policy's own script, which decides a list of requests on one target, in order, as if
-- each were sent alone at the same time. The algorithm follows.
--
-- KEYS    the algorithm's; then the target's lock if ARGV[1] has a penalty
-- ARGV    1  little-endian doubles in one string, which costs the server less than many arguments
--            1  deadline in ms of the server's clock: later the call does nothing; NaN for none
--            2  now in ms, NaN for the server's clock
--            3  penalty in ms for a denial, 0 if only peers set the lock, NaN if it is not read
--            4  cost of the first request
--            5  how many requests of this cost come first
--         2  the algorithm's numbers, as doubles too
--         3  cost and count of each further run of equal requests, as doubles too; '' if there is
--            none, or left out if nothing follows
--         4  the call id, for an algorithm that stores it
-- Returns little-endian doubles in one string
--         1  the server's clock in ms, 0 if it was not read
--         2  now in ms
--         3  ms for which the target is locked, 0 if it is not
--         4… the state that was found, as the algorithm documents it, unless the target is locked
--         After the deadline only 1
-- Errors  BADSTATE
-- Writes  what the algorithm writes; if a request was denied, the lock for the time of the penalty
--
-- Uses    `call`, `pack`, `unpack_numbers`, `format`, `max`
-- Sets    `deadline`, `given_now`, `penalty`, `cost`, `times`, `numbers`, `more_runs`, `call_id`,
--         `server_now`, `now`

local deadline, given_now, penalty, cost, times = unpack_numbers('<ddddd', ARGV[1])
local numbers, more_runs, call_id = ARGV[2], ARGV[3], ARGV[4]

--! include shared/time.lua
if server_now > deadline then
  return pack('<d', server_now)
end

--! part lock
if penalty == penalty then
  local lock = KEYS[#KEYS]
  --! include shared/lock.lua
  if sets_lock then
    call('set', lock, '1', 'px', format('%d', penalty))
  end
  if locked_for > 0 then
    return pack('<ddd', server_now, now, locked_for)
  end
end
--! end
