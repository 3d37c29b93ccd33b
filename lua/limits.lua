-- Two limits that all scripts know. script.rs puts this file in front of each of them.

local LARGEST = 9007199254740992 -- 2^53: up to here a Lua number is an exact integer
local FEW = 32 -- so many grants are summed without a thought
