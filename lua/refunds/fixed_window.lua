-- Gives back of a fixed_window what a request was charged: its count, while its window lasts.
--
-- Returns `back`, the permits that were given back
-- Writes  the counter
--
-- Uses    `counter`, `count`, `left`, `is_new`, `window` of policies/fixed_window.lua; `cost`;
--         `mark`, the ms at which the window of the charge ends, by the server's clock if it was
--         read; `server_now`, `now`, `call`, `format`, `min`, `max`
local back = 0
-- Two readings of one end differ where the server's clock goes on within a script, as before Redis 7.
local TOLERANCE = 100
-- The key expires by the server's clock, whatever the caller's is.
local window_end = (server_now > 0 and server_now or now) + left
local apart = max(mark - window_end, window_end - mark)
if not is_new and window > 2 * TOLERANCE and apart <= TOLERANCE then
  back = max(min(cost, count), 0)
end
if back > 0 then
  call('decrby', counter, format('%d', back))
end
