-- Limits that all scripts share. script.rs puts this file in front of each of them.

local LARGEST = 9007199254740992 -- 2^53: up to here a Lua number is an exact integer
local FEW = 32 -- so many grants are summed in any call: it costs next to nothing
local PAGE = 1000 -- so many grants one call reads at most when it looks for one of them
local SHARED = 1099511627776 -- 2^40: of more permits than that a share is no less than all
local NEWEST = '100' -- so many of the newest grants are summed for a caller that asks what others took
