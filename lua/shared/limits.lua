-- How much a call does at most, and how much of that it may still do. `Bounds` in
-- src/window/bounds.rs has the bounds from ALWAYS_SUMMED to MOST_READ and those of walks too.
--
-- Uses    nothing
-- Sets    the constants `LARGEST`, `ALWAYS_SUMMED`, `MOST_SUMMED`, `ALWAYS_REMOVED`,
--         `ALWAYS_REMOVED_JOINTLY`, `MOST_READ`, `MOST_WALKED`, `MOST_WALKED_JOINTLY`, `SHARED`,
--         `NEWEST`; `always_removed` and `to_remove`, which joint.lua sets to what its limiters
--         share; `most_walked`, which multi_acquire.lua sets.
--         The headers of the files that use `to_remove` say how they change it

local LARGEST = 9007199254740992 -- 2^53, up to which a Lua number is an exact integer
local ALWAYS_SUMMED = 32 -- live grants: if no more, any call that finds expired ones sums them
local MOST_SUMMED = 100 -- live grants: if more, no call sums them; an audit reads them in pages
local ALWAYS_REMOVED = 64 -- expired grants that any call removes: more than it adds
local ALWAYS_REMOVED_JOINTLY = 16 -- expired grants that a joint decision removes of each limiter
local MOST_READ = 500 -- grants that a call reads, and expired ones that it removes for a request
local MOST_WALKED = 2000 -- live grants that a call reads to find when enough of them will expire
local MOST_WALKED_JOINTLY = 50 -- the same, of each limiter, in a call for several limiters
local always_removed = ALWAYS_REMOVED -- expired grants that this call always removes of a limiter
local to_remove = MOST_READ -- expired grants that this call may still remove (a peek: read), in all
local most_walked = MOST_WALKED -- live grants of a limiter that this call reads for a waiting time
local SHARED = 1099511627776 -- 2^40: a share of more permits than this is all of them
local NEWEST = '100' -- newest grants that an acquire reads for `newer` and clocks that are ahead
