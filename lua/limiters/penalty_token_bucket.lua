-- Tokens that come in at the end of each unit of time; a request takes its cost out of them. Its lock is looked at for
-- every target of this algorithm.
--
-- KEYS    tokens left, time of the last inflow
-- numbers 1  capacity
--         2  quantity that comes in with a unit
--         3  unit in ms
--         4  ms of the natural unit at whose start a first unit begins, 0 where it begins with the first request
--         5  time to live in ms of the last inflow, twice what an empty bucket takes to fill and at least a unit
-- Returns 4  tokens left
--         5  time of the last inflow in ms
-- Writes  at a grant the tokens, which live 10 ms longer than number 5, and the time where it moved

local bucket, started = KEYS[1], KEYS[2]
local limit, quantity, unit, natural_unit, time_to_live = unpack_numbers('<ddddd', numbers)

local tokens_text, start_text = call('get', bucket), call('get', started)
-- Tokens that are lost are as many as there can be.
local tokens, start = limit, now
if tokens_text then
  tokens = whole(tokens_text)
end
if start_text then
  start = whole(start_text)
end
if not (tokens and start) then
  return redis.error_reply('BADSTATE the tokens or the time of the last inflow are not a whole number')
end
local start_moved = true
if not start_text then
  -- The time of the last inflow outlives that of filling: the bucket is full.
  tokens = limit
  if natural_unit > 0 then
    start = now - now % natural_unit
  end
else
  tokens = max(min(tokens, limit), 0)
  local units = max(floor((now - start) / unit), 0)
  if units >= ceil((limit - tokens) / quantity) then
    tokens = limit
  else
    tokens = tokens + units * quantity
  end
  start, start_moved = start + units * unit, units > 0
end
local room = tokens

-- grant_runs.lua

if taken > 0 then
  call('set', bucket, format('%d', tokens - taken), 'px', format('%d', time_to_live + 10))
  if start_moved then
    call('set', started, format('%d', start), 'px', format('%d', time_to_live))
  end
end
return pack('<ddddd', server_now, now, 0, tokens, start)
