-- Gives back of a fixed_window what a request was charged: its count, while its window lasts.
--
-- Returns `given_back`, the permits that were given back
-- Writes  the counter
--
-- Uses    `counter`, `count`, `until_end`, `is_new`, `window` of policies/fixed_window.lua; `cost`;
--         `mark`, the ms at which the window of the charge ends, by the server's clock if it was
--         read; `server_now`, `now`, `call`, `format`, `min`, `max`
local given_back = 0
-- Before Redis 7 the server's clock goes on within a script: two readings of one end differ.
local TOLERANCE = 100
-- The key expires by the server's clock, whatever the caller's is.
local window_end = (server_now > 0 and server_now or now) + until_end
local difference = max(mark - window_end, window_end - mark)
if not is_new and window > 2 * TOLERANCE and difference <= TOLERANCE then
  given_back = max(min(cost, count), 0)
end
if given_back > 0 then
  call('decrby', counter, format('%d', given_back))
end
