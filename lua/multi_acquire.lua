-- Acquires on several limiters in one call, each decided by itself as acquire.lua decides it. A call costs the server
-- about as much as a decision.
--
-- KEYS    the keys of each limiter, as in acquire.lua
-- ARGV    1  deadline in ms of the server's clock, after which the call takes nothing; required
--         2  now in ms, '' for the server's clock
--         3  number of limiters
--         4  how many of them, from the front, are of type 0 (overall); the others are of type 1 (per client)
--         5… for each limiter: member, audited rate, permits of all requests together, as ARGV[2] to ARGV[4] of acquire.lua
--         …  for consecutive limiters with the same list or options: the places of the first and the last of them among
--            the limiters, from 1; the number of keys of each; the number of further arguments; and these, as ARGV[7…] of
--            acquire.lua
-- Returns an array with the reply of acquire.lua for each limiter, or its error, which leaves the others unaffected. After
--         the deadline a string with the server's clock alone, as in acquire.lua
-- Errors  those of acquire.lua, within the array
-- Writes  as acquire.lua, for each limiter

--! include shared/limits.lua
most_walked = MOST_WALKED_JOINTLY

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
  for place = tonumber(ARGV[at]), tonumber(ARGV[at + 1]) do
    lists[place] = at
  end
  at = at + 4 + ARGV[at + 3]
end

local first_word, last_word, last_key = 1, 0, nil
local function acquire(name, value_key, permits_key, other_value_key, other_permits_key, rate_type, member, audited_rate,
    all)
  --! include shared/acquire_steps.lua
end

local replies, key = {}, 1
for i = 1, limiters do
  local list, keys = lists[i], 3
  if list then
    keys, first_word, last_word = tonumber(ARGV[list + 2]), list + 4, list + 3 + ARGV[list + 3]
    last_key = key + keys - 1
  else
    first_word, last_word = 1, 0
  end
  local arg = 2 + 3 * i
  local has_run, reply = pcall(acquire, KEYS[key], KEYS[key + 1], KEYS[key + 2], keys >= 5 and KEYS[key + 3],
    keys >= 5 and KEYS[key + 4], i <= overall and '0' or '1', ARGV[arg], ARGV[arg + 1], ARGV[arg + 2])
  if not has_run then
    -- Before Redis 7 a failed command raises the text of its error, preceded by the line of the script.
    reply = { err = type(reply) == 'table' and reply.err or 'ERR ' .. reply }
  end
  replies[i] = reply
  key = key + keys
end
return replies
