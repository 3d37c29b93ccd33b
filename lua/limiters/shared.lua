-- What the scripts of the other limiters share. script.rs puts this file behind limits.lua, then one file for each algorithm,
-- then decide.lua.
--
-- An algorithm is a function of its keys, its numbers, the time in ms, the call's random bytes and the limiter's place in the
-- call. It reads its keys once, and returns a table, or nil and an error. It writes nothing, but shared_rate.lua may remove
-- expired grants:
--   is_unfinished  whether the call has to be made again before anything is decided
--   limit         what a target has at most
--   ask(cost)     whether a request is granted, then what remains (after it where it is granted), the ms until it is
--                 worth asking again, the ms until all is back, the ms that a granted request has to wait. It changes
--                 nothing
--   charge(cost)  takes the cost of a request that ask granted
--   deny()        notes that a request was denied; only in those that write something then
--   write()       writes what came of all requests; called once, where any was charged or its denial noted
-- src/policy/NAME.rs holds the same steps in Rust.

local algorithms = {}
local cost_of_all -- of all requests together, at the limiter at a place; decide.lua says how

local LONGEST = 4503599627370496 -- 2^52: what times in ms, without a date, stay below

-- `number` in digits only: a text that Lua makes of a large one has an exponent.
local function digits(number)
  return string.format('%d', number)
end

-- The whole number that `text` writes as Redis does, or nil: Lua reads ` 5`, `5.0` and `0x5` too, and INCRBY does not.
local function whole(text)
  local number = tonumber(text)
  if number and number % 1 == 0 and number > -LARGEST and number < LARGEST and text == digits(number) then
    return number
  end
end

-- The number that `text` writes, rounded down, or nil.
local function finite(text)
  local number = tonumber(text)
  if number and number > -LARGEST and number < LARGEST then
    return math.floor(number)
  end
end

local function bad_state(what)
  return nil, redis.error_reply('BADSTATE ' .. what)
end

-- The answer of `ask` by a bucket that has so many tokens; until_there_are(wanted) tells the ms until it has more.
local function ask_of_tokens(capacity, tokens, cost, until_there_are)
  if cost > tokens then
    return false, math.max(tokens, 0), until_there_are(cost), until_there_are(capacity), 0
  end
  return true, tokens - cost, 0, until_there_are(capacity + cost), 0
end
