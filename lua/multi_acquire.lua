-- Acquires on several limiters in one call, each decided by itself as acquire.lua decides it. A
-- call costs the server about as much as a decision.
--
-- KEYS    the keys of each limiter, as in acquire.lua
-- ARGV    1  deadline in ms of the server's clock, after which the call takes nothing; required
--         2  now in ms, '' for the server's clock
--         3  number of limiters
--         4  how many of them, the first, are of type 0 (overall); the others are of type 1
--         5… for each limiter: member, audited rate, permits of all requests together, as ARGV[2]
--            to ARGV[4] of acquire.lua
--         …  for consecutive limiters with the same list or options: the places of the first and
--            the last of them among the limiters, from 1; the number of keys of each; the number of
--            arguments that follow; and these, as ARGV[7…] of acquire.lua
-- Returns an array with acquire.lua's reply for each limiter, or its error, which does not affect
--         the others. After the deadline a string with the server's clock alone, as in acquire.lua
-- Errors  those of acquire.lua, within the array
-- Writes  as acquire.lua, for each limiter

--! include shared/limits.lua
most_walked = MOST_WALKED_JOINTLY

local KEYS, ARGV, call, NONE = KEYS, ARGV, redis.call, 0 / 0
local deadline, given_now = ARGV[1] + 0, ARGV[2] == '' and NONE or ARGV[2] + 0
local limiter_count, overall_count = tonumber(ARGV[3]), tonumber(ARGV[4])
local list_starts = {} -- by limiter, the place in ARGV of its list or options

--! include shared/time.lua
if server_now > deadline then
  return struct.pack('<d', server_now)
end

local start = 5 + 3 * limiter_count
while ARGV[start] do
  for limiter = tonumber(ARGV[start]), tonumber(ARGV[start + 1]) do
    list_starts[limiter] = start
  end
  start = start + 4 + ARGV[start + 3]
end

local function acquire(KEYS, ARGV)
  --! include shared/acquire_steps.lua
end

-- KEYS and ARGV of acquire.lua for one limiter after the other: new tables only for another list.
local keys, args, key_count
local list_start = false -- unlike that of the first limiter, a number or nil
local replies = {}
local next_key = 1
for i = 1, limiter_count do
  if list_starts[i] ~= list_start then
    list_start = list_starts[i]
    keys, args = {}, { '', '', '', '', ARGV[2], '' }
    key_count = list_start and tonumber(ARGV[list_start + 2]) or 3
    for word = 1, list_start and ARGV[list_start + 3] or 0 do
      args[6 + word] = ARGV[list_start + 3 + word]
    end
  end
  for key = 1, key_count do
    keys[key] = KEYS[next_key]
    next_key = next_key + 1
  end
  local own = 2 + 3 * i -- the place of the limiter's own arguments
  args[2], args[3], args[4] = ARGV[own], ARGV[own + 1], ARGV[own + 2]
  args[6] = i <= overall_count and '0' or '1'
  local has_run, reply = pcall(acquire, keys, args)
  if not has_run then
    -- Before Redis 7 a failed command raises the text of its error, after the line of the script.
    reply = { err = type(reply) == 'table' and reply.err or 'ERR ' .. reply }
  end
  replies[i] = reply
end
return replies
