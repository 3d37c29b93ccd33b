-- Decides a list of requests, in order, as if each had come alone at the same time.
--
-- KEYS    name, value, permits: the two of all clients, or those of this client where ARGV[6] says so. With the option
--         `setup` also the value and permits of the other type. With more than one request, at the end, the call's own
-- ARGV    1  deadline in ms of the server's clock: a call that arrives later takes nothing; '' for none
--         2  member of the grant where all is granted; its random bytes name this call, made once however often it is
--            sent
--         3  the rate at which this caller had the grants audited lately, '' where it did not
--         4  permits of all requests together
--         5  now in ms, '' for the server's clock
--         6  '1' where the keys are those of a limiter with a rate for each client, else ''
--         7… left out for a request that is alone and has no options. How many runs of equal requests there are, 0 for
--            a request that is alone; the runs: permits, count, permits, count, …; then the options, each a word and
--            its numbers:
--            line   the requests stand in line: the first denial denies all behind it
--            share  permille, credit: of the permits left only left * permille + credit thousandths may be taken; where
--                   more than 2^40 are left, all
--            newer  score: tells how many permits the grants with a higher one hold, of the 100 newest
--            retry  the deadline of the attempts before, as ARGV[1]; the earliest and the latest time that one of them
--                   can have scored its grant with. What the call holds is found, and nothing is decided before that
--                   deadline has passed: so one attempt decides at most
--            setup  rate, interval, type, keep alive, '1' where a limiter that is there must have this keep alive too:
--                   a limiter that is not there, or has other settings, gets these. What is in use counts on, but a
--                   change of the type resets all, and what an earlier limiter of this name left is deleted
--         What is '' at the end is left out. Each key and each argument has its price, two of them that of a look-up
-- Returns little-endian doubles in one string, which takes the server half as long as an array
--         1  server's clock in ms, 0 where it was not read
--         2  permits left before the list, enough for all of it or else exact; with it and the rate the caller works out
--            each request's answer
--         3  ms until the first of the live grants before the list are back, the interval where there is none
--         4  rate, left out where it is ARGV[3] and no more follows
--         5  by how many ms the newest grant is ahead of now
--         6  how many grants were summed, -1 where they are too many and an audit is due; 2 less where more grants have
--            expired than were removed, so that more permits may be there than 2 says
--         7  1 where an earlier attempt was granted: then 2 is what its grant holds, and 8 its score; else 0
--         8  score of the grants made
--         9  the permits that `newer` asks about, before this call's grant; -1 where it was not asked
--         10 where a request was denied and the limiter expires, unless it is asked again, no later than 3 ms after the
--            time of 3: the ms until then; else -1
--         11 the interval in ms
--         5 and 6 only where the grants were looked through, 7 to 11 only where one of them tells something. Only 1 where
--         the call came after its deadline. Where nothing was done: 1, a number, and what that is:
--         'type'   the limiter's type, which is not the one that its keys are for
--         'early'  the ms until the deadline of the attempts before has passed
--         'more'   the score from which to look on for what the attempts before left
--         'again'  0: so many grants have expired that their permits are counted in several calls. Ask again
-- Errors  UNINITIALIZED, BADSTATE
-- Writes  one member for all that is granted, the permits left; expired grants go, 500 at most in a call; permits left that
--         do not agree with the grants are set right where these are few; the times to live; the hash where `setup` says so.
--         Where a part of a list is granted, how much and with which score, in the call's own key until the deadline: a copy
--         of the call finds it and takes nothing. Nothing where every request is for more than the rate.

local KEYS, ARGV, call, pack = KEYS, ARGV, redis.call, struct.pack
local name, value_key, permits_key, other_value_key, other_permits_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local deadline, member, summed_rate, all, given_now = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] or ''
local rate_type, first_word, last_word, last_key = ARGV[6] == '1' and '1' or '0', 7, #ARGV

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
