-- Decides the requests, one run of equal requests after the other: of each as many as fit are granted. After the first
-- denied request of a policy with a penalty, sets the lock, the last key, and decides no more.
--
-- Uses    `limit` and `room`, which the algorithm has read; `cost`, `times` and `more_runs`, the requests; `penalty`;
--         `call`, `unpack_numbers`, `format`, `floor`, `max`
-- Sets    `taken`, `denied_cost`, `denied_taken`, `more_denied`, which shared/policy.lua explains; `next_run`
-- Changes `cost` and `times`, to those of the run that it decided last
local taken, denied_cost, denied_taken, more_denied, next_run = 0, nil, nil, nil, 1
repeat
  if cost <= limit then
    local fit = times
    if room - taken < cost * times then
      fit = max(floor((room - taken) / cost), 0)
    end
    taken = taken + fit * cost
    if fit < times then
      if not denied_cost then
        denied_cost, denied_taken = cost, taken
      else
        more_denied = more_denied or {}
        more_denied[#more_denied + 1] = cost
        more_denied[#more_denied + 1] = taken
      end
      if penalty > 0 then
        -- The lock denies all that follow.
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
