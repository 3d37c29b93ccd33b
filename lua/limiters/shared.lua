-- What the scripts of the other limiters have at hand. script.rs puts this file behind limits.lua.
--
-- Each algorithm stands in a file of its own, NAME.lua, in two parts:
--   before the line `-- grant_runs.lua`  reads the state, and sets `limit`, what a target has at most, and `room`: a
--                                        request fits whose cost is no more than both. It writes nothing
--   after it   writes what came of the requests, and returns the state it found as little-endian doubles in one string:
--              server_now, now, 0, and the algorithm's own. From these the caller works out each request's answer
-- Between the two the requests are decided, which sets
--   taken         the cost of all that were granted
--   denied_cost   of the first run of which a request was denied: its cost, nil where there was none, and
--   denied_taken  what had been taken until then
--   more_denied   the same two of each further one in an array, nil where there are none
-- It finds its KEYS, its `numbers` as little-endian doubles in one string, `now` in ms, and `random`, which names the call.
--
-- So the same text is both: with grant_runs.lua in that line it is a script for one target, without a function or a table
-- of its own; joint.lua has it in functions, where several limiters decide together.
-- src/policy/NAME.rs holds the same steps in Rust.

local KEYS, call, pack, unpack_numbers = KEYS, redis.call, struct.pack, struct.unpack
local format, floor, ceil, max, min = string.format, math.floor, math.ceil, math.max, math.min
