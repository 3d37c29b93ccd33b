-- What a call does at most, and how much of that is left for the rest of the call. `Bounds` in src/window/bounds.rs has the
-- bounds from ALWAYS_SUMMED to MOST_READ, and those of what is walked, too.
--
-- Uses    nothing
-- Sets    `LARGEST`, `ALWAYS_SUMMED`, `MOST_SUMMED`, `ALWAYS_REMOVED`, `ALWAYS_REMOVED_JOINTLY`, `MOST_READ`, `SHARED`,
--         `NEWEST`, `MOST_WALKED`, `MOST_WALKED_JOINTLY`, which are constants; `always_removed` and `to_remove`, which joint.lua sets to what
--         its limiters share; `most_walked`, which multi_acquire.lua sets.
--         The headers of the files that use `to_remove` say how they change it

local LARGEST = 9007199254740992 -- 2^53, up to which a Lua number is an exact integer
local ALWAYS_SUMMED = 32 -- up to this many live grants are summed in any call that finds expired ones
local MOST_SUMMED = 100 -- more live grants than this are never summed in one call: an audit reads them in pages
local ALWAYS_REMOVED = 64 -- expired grants that any call removes, more than it adds
local ALWAYS_REMOVED_JOINTLY = 16 -- the same of each limiter of a joint decision
local MOST_READ = 500 -- expired grants that a call removes where a request needs their permits, and grants that it reads
local MOST_WALKED = 2000 -- live grants that a call reads to find when enough of them have expired
local MOST_WALKED_JOINTLY = 50 -- the same of each limiter of a call for several
local always_removed = ALWAYS_REMOVED -- expired grants that this call removes of a limiter in any case
local to_remove = MOST_READ -- grants that this call may still remove, or read if it is a peek, over all its limiters
local most_walked = MOST_WALKED -- live grants that this call reads of a limiter to tell when a request fits
local SHARED = 1099511627776 -- 2^40: a share of more permits than this is all of them
local NEWEST = '100' -- of the newest grants, how many are summed for the option `newer`
