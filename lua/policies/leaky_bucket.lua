-- A bucket that drains at a constant rate; a request that does not fit is denied.
--
-- KEYS    level, time of the last drain
-- numbers 1  capacity
--         2  quantity that drains per period
--         3  period in ms
--         4  the unit of the clock in ms at whose start the first period begins, 0 if it begins
--            with the first request
-- Returns 4  level of the bucket
--         5  time of the last drain in ms
--         6  1 for the first request on the target, else 0
-- Writes  at a grant the level, and the time if it changed; both live for the time that a full
--         bucket takes to drain, or longer, as shared/life.lua says: until the bucket is empty

--! include shared/limits.lua
--! include shared/policy.lua
--! include shared/whole.lua
--! include shared/one_target.lua

--! part read
local level_key, start_key = KEYS[1], KEYS[2]
local capacity, quantity, period, clock_unit = unpack_numbers('<dddd', numbers)
local limit = capacity + quantity

local level_text, start_text = call('get', level_key), call('get', start_key)
local level, start = 0, now
if level_text then
  level = whole(level_text)
end
if start_text then
  start = whole(start_text)
end
if not (level and start) then
  return redis.error_reply('BADSTATE the level or the time of the last drain is not an integer')
end
local used = max(level, 0)
--! include shared/flow.lua
--! end

--! include shared/grant_runs.lua

--! part state
local state = pack('<dddddd', server_now, now, 0, used, start, is_first and 1 or 0)
--! end

--! part write
local life_key, key_exists, gives_ttl = start_key, start_text, false
local needed_ttl = ceil((used + taken) / quantity) * period + start - now
local extended_ttl = needed_ttl
--! include shared/life.lua
if taken > 0 then
  local full_ttl = (ceil(capacity / quantity) + 1) * period
  local time_to_live = format('%d', max(ttl_left, needed_ttl, full_ttl))
  call('set', level_key, format('%d', used + taken), 'px', time_to_live)
  if start_moved then
    call('set', start_key, format('%d', start), 'px', time_to_live)
  end
elseif is_extended then
  local life_key = level_key
  --! include shared/life.lua
end
return state
--! end
