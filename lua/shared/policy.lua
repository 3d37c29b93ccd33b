-- Names for what the scripts of the policies use.
--
-- An algorithm is one file, policies/NAME.lua, with three parts:
--   read   reads the state and sets `limit`, the most that a target can ever be granted, and `room`: a request fits if
--          its cost is at most both. Writes nothing
--   state  sets `state`, the state as it was found, as little-endian doubles in one string: server_now, now, 0, then the
--          algorithm's own. The caller computes each request's decision from these. Writes nothing
--   write  writes the effect of the requests and returns `state`
-- Behind the first the requests are decided, which sets
--   taken         total cost of the granted requests
--   denied_cost   cost of the first run with a denied request, nil if none was denied
--   denied_taken  what had been taken before that request
--   more_denied   the same two numbers for each further run with a denied request, in one array; nil if there are none
-- An algorithm finds its `KEYS`, its `numbers` as little-endian doubles in one string, `now` in ms, and the `call_id`. As a
-- script of its own it is straight-line code without functions or tables; joint.lua wraps its parts into functions, so
-- that several limiters decide together. src/policies/NAME/model.rs holds the same steps in Rust.
--
-- Uses    nothing
-- Sets    `KEYS`, `call`, `pack`, `unpack_numbers`, `find`, `format`, `floor`, `ceil`, `max`, `min`; `most_others`, `MOST_LENGTHS`

local KEYS, call, pack, unpack_numbers = KEYS, redis.call, struct.pack, struct.unpack
local find, format, floor, ceil, max, min = string.find, string.format, math.floor, math.ceil, math.max, math.min
-- Counters of periods of other lengths than its own that a call reads of a sliding_window_counter at most, and such lengths
-- with its own. src/policies/lengths.rs repeats them.
local most_others, MOST_LENGTHS = 1000, 16
