-- Acquires on several limiters, each decided by itself as acquire.lua decides it: in one call, because a call costs the
-- server about as much as a decision.
--
-- KEYS    of each limiter: its keys, as of acquire.lua
-- ARGV    1  deadline in ms of the server's clock: a call that arrives later takes nothing
--         2  now in ms, '' for the server's clock
--         3  how many limiters
--         4  how many of them, from the front, have one rate for all clients; the others have one for each
--         5… of each limiter: member, summed rate, permits of all requests together, as ARGV[2] to ARGV[4] of acquire.lua
--         …  of each limiter that is asked for more than one plain request: its place among them, how many keys it has,
--            how many arguments follow, and these, as ARGV[7…] of acquire.lua
-- Returns what acquire.lua returns, for each limiter: a string or an error, which leaves the others as they are. Only the
--         server's clock, little-endian as there, where the call came after its deadline
-- Writes  as acquire.lua, for each limiter

local KEYS, ARGV, call, pack = KEYS, ARGV, redis.call, struct.pack
local deadline, given_now, limiters, overall = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local lists = {}

local time = call('time')
local server_now = time[1] * 1000 + time[2] / 1000
server_now = server_now - server_now % 1
if server_now > deadline + 0 then
  return pack('<d', server_now)
end
local now = given_now == '' and server_now or given_now + 0

local at = 5 + 3 * limiters
while ARGV[at] do
  lists[tonumber(ARGV[at])] = at
  at = at + 3 + ARGV[at + 2]
end

local first_word, last_word, last_key = 1, 0, nil
local function acquire(name, value_key, permits_key, other_value_key, other_permits_key, rate_type, member, summed_rate,
    all)
-- acquire_steps.lua
end

local answers, key = {}, 1
for i = 1, limiters do
  local list, keys = lists[i], 3
  if list then
    keys, first_word, last_word = tonumber(ARGV[list + 1]), list + 3, list + 2 + ARGV[list + 2]
    last_key = key + keys - 1
  else
    first_word, last_word = 1, 0
  end
  local arg = 2 + 3 * i
  local is_whole, answer = pcall(acquire, KEYS[key], KEYS[key + 1], KEYS[key + 2], keys >= 5 and KEYS[key + 3],
    keys >= 5 and KEYS[key + 4], i <= overall and '0' or '1', ARGV[arg], ARGV[arg + 1], ARGV[arg + 2])
  if not is_whole then
    -- Before Redis 7 a failed command raises its error's text, with the line in front of it.
    answer = { err = type(answer) == 'table' and answer.err or 'ERR ' .. answer }
  end
  answers[i] = answer
  key = key + keys
end
return answers
