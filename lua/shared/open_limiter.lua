-- Starts a script on one limiter, once the arguments have names: names the keys and opens the
-- limiter.
--
-- KEYS    name, value, value of the client, permits, permits of the client; then audit, for a
--         script that an audit has to notice
-- Errors  UNINITIALIZED, BADSTATE
--
-- Uses    `given_now`, an argument; `load_window`
-- Sets    `name`, `value`, `client_value`, `permits`, `client_permits`, `audit`; `now` in ms;
--         `window`, the functions of shared/window.lua; `limiter`; `failure`, which is nil

local name, value, client_value, permits, client_permits, audit = unpack(KEYS)
local window = load_window()
local now = window.time_of(given_now)
local limiter, failure = window.open(name, value, client_value, permits, client_permits)
if failure then
  return failure
end
