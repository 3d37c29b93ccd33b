-- Gives back what a lease took of a fixed window and did not use: to that window, or to none, and once.
--
-- KEYS    counter; length of the current window; the call's own
-- ARGV    little-endian doubles in one string
--         1  deadline in ms of the server's clock, after which the call does nothing. All attempts of a call have the same
--         2  when the window ends that was leased, in ms of the server's clock
--         3  its length in ms
--         4  the permits to give back, at least 1
-- Returns the permits that came back, 0 if that window is over. Or an error, BADSTATE, if the counter is none
-- Writes  lowers the counter, but not below 0. The call's key has what came back, until the deadline: so an attempt that
--         follows another one only repeats its answer

--! include shared/limits.lua
--! include shared/policy.lua
--! include shared/whole.lua

local counter, length, of_call = KEYS[1], KEYS[2], KEYS[3]
local deadline, ends, window, permits = unpack_numbers('<dddd', ARGV[1])
local given_now = deadline -- what it decides depends on the server's clock alone

--! include shared/time.lua
if server_now > deadline then
  return 0
end
local answered = call('get', of_call)
if answered then
  return tonumber(answered)
end
local count, left = call('get', counter), call('pttl', counter)
if left <= 0 then
  return 0
end
count = whole(count)
if not count then
  return redis.error_reply('BADSTATE the counter is not an integer')
end
-- Windows do not overlap, so those of one length whose ends are closer than half of it are the same. Two calls know the end of
-- one window to the time between the start of a script and its reading of the clock, which is short. Who changes the length
-- says so beside each window that begins or moves then.
local apart = math.abs(server_now + left - ends)
local is_same = apart < min(window / 2, 250) and (tonumber(call('get', length)) or window) == window
local back = is_same and max(min(permits, count), 0) or 0
if back > 0 then
  call('set', of_call, format('%d', back), 'px', format('%d', deadline - server_now + 1))
  call('decrby', counter, format('%d', back))
end
return back
