-- Tokens that arrive at the end of each period; a request takes its cost in tokens. The lock of a
-- target is always read, whether or not this policy has a penalty.
--
-- KEYS    tokens, time of the last refill
-- numbers 1  capacity
--         2  quantity that arrives per period
--         3  period in ms
--         4  the unit of the clock in ms at whose start the first period begins, 0 if it begins
--            with the first request
--         5  time to live in ms of the last refill: twice the time that an empty bucket takes to
--            fill, at least a period
-- Returns 4  tokens
--         5  time of the last refill in ms
-- Writes  at a grant the tokens, which live 10 ms longer than number 5, and the time if it changed;
--         both live longer, as shared/life.lua says, if the bucket is not full before

--! include shared/limits.lua
--! include shared/policy.lua
--! include shared/whole.lua
--! include shared/one_target.lua

--! part read
local tokens_key, start_key = KEYS[1], KEYS[2]
local limit, quantity, period, clock_unit, time_to_live = unpack_numbers('<ddddd', numbers)

local tokens_text, start_text = call('get', tokens_key), call('get', start_key)
-- A missing count of tokens is a full bucket.
local tokens, start = limit, now
if tokens_text then
  tokens = whole(tokens_text)
end
if start_text then
  start = whole(start_text)
end
if not (tokens and start) then
  return redis.error_reply('BADSTATE the tokens or the time of the last refill is not an integer')
end
local used = limit - max(min(tokens, limit), 0)
--! include shared/flow.lua
--! end

--! include shared/grant_runs.lua

--! part state
local state = pack('<ddddd', server_now, now, 0, room, start)
--! end

--! part write
local life_key, key_exists, gives_ttl = start_key, start_text, false
local needed_ttl = ceil((used + taken) / quantity) * period + start - now
local extended_ttl = needed_ttl
--! include shared/life.lua
if taken > 0 then
  time_to_live = max(ttl_left, needed_ttl, time_to_live)
  call('set', tokens_key, format('%d', room - taken), 'px', format('%d', time_to_live + 10))
  if start_moved then
    call('set', start_key, format('%d', start), 'px', format('%d', time_to_live))
  end
elseif is_extended then
  local life_key, needed_ttl, extended_ttl = tokens_key, needed_ttl + 10, needed_ttl + 10
  --! include shared/life.lua
end
return state
--! end
