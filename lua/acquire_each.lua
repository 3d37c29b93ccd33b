-- Acquires on several limiters, each decided by itself as acquire.lua decides it: in one call, because a call costs the
-- server about as much as a decision.
--
-- KEYS    of each limiter: name, value, permits, the two of its type
-- ARGV    1  deadline in ms of the server's clock: a call that arrives later takes nothing
--         2  now in ms, '' for the server's clock
--         3  how many of the limiters, from the front, have one rate for all clients; the others have one for each
--         4… of each limiter: member, summed rate, permits of all requests together, as ARGV[2] to ARGV[4] of acquire.lua
--         …  of each limiter that got other than one request, its place among them, then how many of the runs stand in
--            line, the number of runs, and the runs: permits, count, permits, count, …
-- Returns what acquire.lua returns, for each limiter: a string or an error, which leaves the others as they are. Only the
--         server's clock, little-endian as there, where the call came after its deadline
-- Writes  as acquire.lua, for each limiter

local KEYS, ARGV, call, pack = KEYS, ARGV, redis.call, struct.pack
local deadline, given_now, overall = ARGV[1], ARGV[2], tonumber(ARGV[3])
local limiters, lists = #KEYS / 3, {}

local time = call('time')
local server_now = time[1] * 1000 + time[2] / 1000
server_now = server_now - server_now % 1
if server_now > deadline + 0 then
  return pack('<d', server_now)
end
local now = given_now == '' and server_now or given_now + 0

local at = 4 + 3 * limiters
while ARGV[at] do
  lists[tonumber(ARGV[at])] = at
  at = at + 3 + 2 * ARGV[at + 2]
end

local sent_before, runs_in_line, first_run, last_run = false, nil, 1, 0
local function acquire(name, value_key, permits_key, rate_type, member, summed_rate, all)
-- acquire_steps.lua
end

local answers = {}
for i = 1, limiters do
  local list = lists[i]
  if list then
    runs_in_line, first_run, last_run = ARGV[list + 1], list + 3, list + 2 + 2 * ARGV[list + 2]
  else
    first_run, last_run = 1, 0
  end
  local key, arg = 3 * i, 3 * i + 1
  local is_whole, answer = pcall(acquire, KEYS[key - 2], KEYS[key - 1], KEYS[key], i <= overall and '0' or '1',
    ARGV[arg], ARGV[arg + 1], ARGV[arg + 2])
  if not is_whole then
    -- Before Redis 7 a failed command raises its error's text, with the line in front of it.
    answer = { err = type(answer) == 'table' and answer.err or 'ERR ' .. answer }
  end
  answers[i] = answer
end
return answers
