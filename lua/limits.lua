-- Limits that all scripts share. script.rs puts this file in front of each of them.

local LARGEST = 9007199254740992 -- 2^53: up to here a Lua number is an exact integer
local FEW = 32 -- so many grants are summed in any call: it costs next to nothing
local SUMMED = 100 -- of more grants none are summed: an audit does so in pieces
local SPARE = 64 -- so many expired grants any call removes, more than it adds
local PAGE = 500 -- so many expired grants a call removes where a request needs their permits, and so many grants it reads
local to_remove = PAGE -- how many expired grants this call may still remove, over all its limiters
local SHARED = 1099511627776 -- 2^40: of more permits than that a share is no less than all
local NEWEST = '100' -- so many of the newest grants are summed for a caller that asks what others took
