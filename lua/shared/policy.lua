-- Gives names to what the scripts of the policies use.
--
-- An algorithm is one file, policies/NAME.lua, with three parts:
--   read   reads the state and sets `limit`, the most that a target can ever be granted, and
--          `room`: a request fits if its cost is at most both. Writes nothing
--   state  sets `state`, the state that was found, as little-endian doubles in one string:
--          server_now, now, 0, then the algorithm's own, from which the caller computes each
--          request's decision. Writes nothing
--   write  writes the effect of the requests and returns `state`
-- After `read` the requests are decided, which sets
--   taken         total cost of the granted requests
--   denied_cost   cost of the first run with a denied request, nil if none was denied
--   denied_taken  the cost taken before that request
--   more_denied   the same two numbers for each further run with a denied request, in one array;
--                 nil if there is none
-- An algorithm finds `KEYS`, its `numbers` as little-endian doubles in one string, `now` in ms, and
-- `call_id`. Its own script is straight-line code without functions or tables; joint.lua wraps its
-- parts into functions, so that several limiters decide together. src/policies/NAME/model.rs has
-- the same steps in Rust.
--
-- Uses    nothing
-- Sets    `KEYS`, `call`, `pack`, `unpack_numbers`, `find`, `format`, `floor`, `ceil`, `max`,
--         `min`; `most_others`, `MOST_LENGTHS`

local KEYS, call, pack, unpack_numbers = KEYS, redis.call, struct.pack, struct.unpack
local find, format = string.find, string.format
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
-- Of a sliding_window_counter: how many counters of periods of other lengths than its own a call
-- reads at most, and how many lengths are kept, its own included. src/policies/lengths.rs has the
-- same numbers.
local most_others, MOST_LENGTHS = 1000, 16
