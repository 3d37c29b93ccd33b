-- Decides the requests, run by run of equal requests: grants as many of each run as fit. With a
-- penalty, the first denied request sets the lock, which is the last key, and ends the decision.
--
-- Uses    `limit` and `room`, which the algorithm has read; `cost` and `times` of the first run,
--         `more_runs`; `penalty`; `call`, `unpack_numbers`, `format`, `floor`, `max`
-- Sets    `taken`, `denied_cost`, `denied_taken`, `more_denied`, which shared/policy.lua explains;
--         `next_run`, the place of the next run in the others
-- Changes `cost` and `times`, to those of the run that it decided last
local taken = 0
local denied_cost, denied_taken, more_denied
local next_run = 1
repeat
  if cost <= limit then
    local granted = times
    if room - taken < cost * times then
      granted = max(floor((room - taken) / cost), 0)
    end
    taken = taken + granted * cost
    if granted < times then
      if not denied_cost then
        denied_cost, denied_taken = cost, taken
      else
        more_denied = more_denied or {}
        more_denied[#more_denied + 1] = cost
        more_denied[#more_denied + 1] = taken
      end
      if penalty > 0 then
        -- The lock denies all requests that follow.
        call('set', KEYS[#KEYS], '1', 'px', format('%d', penalty))
        break
      end
    end
  end
  local has_more = more_runs and next_run < #more_runs
  if has_more then
    cost, times, next_run = unpack_numbers('<dd', more_runs, next_run)
  end
until not has_more
