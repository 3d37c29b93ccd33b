-- Decides a list of requests, in order, as if each had come alone at the same time.
--
-- KEYS    name, value, permits: the two of all clients, or those of this client where ARGV[6] says so
-- ARGV    1  deadline in ms of the server's clock: a call that arrives later takes nothing; '' for none
--         2  member of the grant where all is granted; its random bytes name this call, made once however often it is
--            sent
--         3  the rate at which this caller had the live grants summed lately, '' where it did not
--         4  permits of all requests together
--         5  now in ms, '' for the server's clock
--         6  '1' where the keys are those of a limiter with a rate for each client, else ''
--         7  '1' where it was sent before, else ''
--         8  how many of the runs stand in line: there the first denial denies all behind it
--         9… runs of equal requests: permits, count, permits, count, …; none for a request that is alone
--         What is '' at the end is left out. Each key and each argument has its price, two of them that of a look-up
-- Returns little-endian doubles in one string, which takes the server half as long as an array
--         1  server's clock in ms, 0 where it was not read
--         2  permits left before the list; with it and the rate the caller works out each request's answer
--         3  ms until the first of the live grants before the list are back, the interval where there is none
--         4  rate, left out where it is ARGV[3] and no more follows
--         5  by how many ms the newest grant is ahead of now
--         6  how many live grants were summed
--         7  score of the grant that an earlier sending made
--         5 and 6 only where the grants were looked through, 7 only where there is such a grant; only 1 where the
--         call came after its deadline; only 1 and the type, where the limiter's is not the one that its keys are
--         for, and nothing was done. Grants are scored with now
-- Errors  UNINITIALIZED, BADSTATE
-- Writes  one member for all that is granted, the permits left; grants that are over go; books that do not
--         balance are settled; the times to live. Nothing where every request is for more than the rate.

local KEYS, ARGV, call, pack = KEYS, ARGV, redis.call, struct.pack
local name, value_key, permits_key = KEYS[1], KEYS[2], KEYS[3]
local deadline, member, summed_rate, all, given_now = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] or ''
local rate_type, sent_before, runs_in_line = ARGV[6] == '1' and '1' or '0', ARGV[7] == '1', ARGV[8]
local first_run, last_run = 9, #ARGV

-- What is known to be a number becomes one in arithmetic: tonumber reads each text twice.
local server_now = 0
if given_now == '' or deadline ~= '' then
  local time = call('time')
  server_now = time[1] * 1000 + time[2] / 1000
  server_now = server_now - server_now % 1
end
if deadline ~= '' and server_now > deadline + 0 then
  return pack('<d', server_now)
end
local now = given_now == '' and server_now or given_now + 0

-- acquire_steps.lua
