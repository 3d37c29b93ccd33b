-- Returns what an abandoned call took, once no attempt of the call can arrive any more.
--
-- KEYS    name, value, value of the client, permits, permits of the client, audit
-- ARGV    1  now in ms, '' for the server's clock
--         2  the last deadline of the call's attempts, in ms of the server's clock
--         3  the member of the grant if every request is granted; its random bytes are the call id
--         4  the earliest score that a grant of the call can have
--         5  the latest such score
--         6  audited rate, as ARGV[3] of acquire.lua
--         7  score of the grant that was delivered to its caller, which stays; '' if none was
-- Returns a string: two little-endian doubles, the server's clock in ms and a number, then a word
--         'done'   the number is the permits returned: 0 if the call took nothing, or its grant has
--                  expired
--         'early'  ms until the deadline has passed; nothing was written
--         'more'   the score from which to continue, as ARGV[4]; nothing was written
-- Errors  UNINITIALIZED, BADSTATE
-- Writes  as refund.lua, for the whole grant
-- Tells   as refund.lua

--! include shared/limits.lua
--! include shared/window.lua

local given_now, deadline, member = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local from, to, audited_rate = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local delivered_score = tonumber(ARGV[7])

local server_time = redis.call('time')
local server_now = server_time[1] * 1000 + math.floor(server_time[2] / 1000)
local function reply(number, word)
  return struct.pack('<dd', server_now, number) .. word
end
if server_now <= deadline then
  return reply(deadline - server_now + 1, 'early')
end

--! include shared/open_limiter.lua

local score, more
member, score, more = window.find_call(limiter.permits_key, member, from, to)
if more then
  return reply(more, 'more')
end
if not member or tonumber(score) == delivered_score
  or tonumber(score) <= now - limiter.interval then
  return reply(0, 'done')
end

local number = math.huge -- all that it holds
--! include shared/return_grant.lua
return reply(returned, 'done')
