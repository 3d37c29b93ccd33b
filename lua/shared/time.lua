-- Reads the server's clock if the call has a deadline or passes no time of its own. NaN stands for
-- a missing number: comparisons with it are false.
--
-- Uses    `given_now`, `deadline`, `call`
-- Sets    `server_now`, 0 if it was not read; `now`
local server_now, now = 0, given_now
if now ~= now or deadline == deadline then
  local time = call('time')
  server_now = time[1] * 1000 + time[2] / 1000
  server_now = server_now - server_now % 1
  if now ~= now then
    now = server_now
  end
end
