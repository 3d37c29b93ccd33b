-- Decides a list of requests on one limiter, in order, as if each were sent alone at one time.
--
-- KEYS    name, value, permits: value and permits of all clients, or of this client if ARGV[6] is
--         '1'. With the option `setup` then the value and permits of the other type. For a list of
--         more than one request the call's own key comes last
-- ARGV    1  deadline in ms of the server's clock, after which the call takes nothing; '' for none
--         2  the member of the grant that is made if every request is granted. Its random bytes are
--            the call id: made once, and sent unchanged with every attempt. Of a lease they are the
--            call id and, as a little-endian u64, the ms for which its permits may be used: its
--            score is so far ahead of now, but it expires no later than the limiter does
--         3  the rate in the last reply; live grants are summed if it is '' or another rate than
--            the limiter's
--         4  permits of all requests together
--         5  now in ms, '' for the server's clock
--         6  '1' for the keys of a limiter of type 1 (per client), else ''
--         7… only for a list or with options. The number of runs of equal requests, 0 for a single
--            request; permits and count of each run; then options, each a word and its numbers:
--            fifo   a denied request denies all that follow it
--            debt   a single request is granted, whatever the rate and the available permits: these
--                   may fall below zero. Without `share`
--            share  permille, credit: at most (available * permille + credit) / 1000 permits are
--                   taken; all if more than 2^40 are available
--            newer  score: returns the permits of the grants made after it, of the 100 newest
--            retry  of the earlier attempts: the last deadline, the earliest and the latest score
--                   that a grant can have. Their grant is returned; if there is none, nothing is
--                   decided before that deadline has passed, so at most one attempt takes permits
--            reserve  ms: a single request for permits that become available within this time, and
--                   may be used for an interval then: the score is its end. They are taken at once:
--                   the value may fall below zero, and others wait. ARGV[2] has 2^53 for the ms.
--                   Without `share` and `debt`
--            setup  rate, interval, type, keep alive, and '2', '0' or '1': a missing limiter is
--                   created with these settings, and what an earlier one left is deleted. With '2'
--                   an existing one stays as it is. Else it gets these settings, but a longer keep
--                   alive stays; only with '1' a limiter without a keep alive gets this one, or
--                   loses its own if this is none. Live grants go on counting; a change of the type
--                   resets the limiter
--         Empty arguments at the end are left out: two cost the server as much as a look-up
-- Returns little-endian doubles in one string, which costs the server half as much as an array
--         1  the server's clock in ms, 0 if it was not read
--         2  available permits before the list: at least enough for all of it, or exact. With
--            `reserve` at least the request's if it is granted, else fewer. With the rate it says
--            which requests were granted
--         3  ms until the oldest live grant with permits expires, the interval if there was none
--         4  interval in ms. For an earlier attempt that `reserve` was granted, the interval of
--            that time, for which its permits may be used before the score; 0 if it is not known
--         5  if a request was denied, ms until what was in use before the list is back, at most the
--            interval. Else the interval; may then be left out, with all that follows
--         6  rate; may be left out, with all that follows, if it is ARGV[3]
--         7  the most ms by which one of the 100 newest grants was made ahead of now
--         8  how many live grants were summed; -1 if they are too many, so that an audit is due; -2
--            if expired grants remain, however many were summed, so that more permits may be
--            available than 2 says; -3 if both
--         9  1 if an earlier attempt was granted: then 2 is what its grant holds, and 10 its score;
--            else 0
--         10 score of the grant made, or that a denied reservation would have
--         11 the permits that `newer` asks for, without this call's own; -1 without that option
--         12 if a request was denied and more than half of the keep alive will have passed 3 ms
--            after the time in 3: ms until the limiter expires, unless a call renews it. Call after
--            half of them. Else -1
--         13 if 9 is 1: the permits that are available now, at least; 0 if the value is unusable.
--            Else only if the limiter keeps other settings than those of `setup`: its keep alive in
--            ms; -1 if it does not, and 14 follows
--         14 if a request of a list without `fifo` and `share` was denied, and this field or a
--            later one is not the time in 3: ms until more permits are available than now, at least
--            one, if nobody else takes any
--         15… with 14: for each run, or the single request, ms until what its first denied request
--            lacked is available; without a denied one as in 14
--         The reply has the first 4, 5, 6, 8, 12, 13 or all fields, without those at the end that
--         say nothing; after the deadline only 1. If nothing was decided: 1, a number, and a word
--         'type'   the type that the limiter has, or that `setup` gives it: not that of the keys
--         'early'  ms until the deadline of the earlier attempts has passed
--         'more'   the score from which to go on looking for the grant of an earlier attempt
--         'again'  0: more grants have expired than one call removes. Send the call again
-- Errors  UNINITIALIZED, BADSTATE
-- Writes  one member for all granted requests, and the value; removes expired grants, at most 500;
--         corrects the value if the grants are few and the invariant does not hold; renews the
--         times to live; with `setup` the hash. If a part of a list is granted, its permits and
--         score in the call's own key until the deadline, so that a copy of the call finds them and
--         takes nothing. Nothing if each request exceeds the rate

--! include shared/limits.lua

local KEYS, ARGV, call, NONE = KEYS, ARGV, redis.call, 0 / 0
local deadline = ARGV[1] == '' and NONE or ARGV[1] + 0
local given_now = (ARGV[5] or '') == '' and NONE or ARGV[5] + 0

--! include shared/time.lua
if server_now > deadline then
  return struct.pack('<d', server_now)
end

--! include shared/acquire_steps.lua
