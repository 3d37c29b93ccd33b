-- Changes the rate of a limiter, and keeps the permits in use on request.
--
-- KEYS    name, value, value of the client, permits, permits of the client
-- ARGV    1  now in ms, '' for the server's clock
--         2  rate
--         3  interval in ms
--         4  type, '0' overall or '1' per client
--         5  keep alive in ms, '0' for none
--         6  '1' to keep the permits in use, '0' to reset the limiter
--         7  '1' to do nothing if there is no limiter, '0' to create one
-- Returns 1 if the rate was set, else 0
-- Writes  the hash and the times to live. If the type changes, deletes all other keys. If the
--         limiter is reset, deletes the value and the permits of its type. If permits in use are
--         kept, removes the grants that have expired by the new interval, and sets the value to the
--         rate less the live ones; with more than 100 grants of which some are live, only adds the
--         change of the rate to the value
-- Tells   the clients that wait, by shared/publish_freed.lua, if the rate was set

--! include shared/limits.lua
--! include shared/window.lua
--! include shared/publish_freed.lua

local window = load_window()
local name, value, client_value, permits, client_permits = unpack(KEYS)
local now = window.time_of(ARGV[1])
local rate, interval, limiter_type = ARGV[2] + 0, ARGV[3] + 0, ARGV[4]
local keep_alive, keeps_permits, only_existing = ARGV[5] + 0, ARGV[6] == '1', ARGV[7] == '1'

local fields = redis.call('hmget', name, 'rate', 'type')
local rate_before, type_before = window.integer(fields[1] or ''), fields[2]
if only_existing and redis.call('exists', name) == 0 then
  return 0
end
local changes_type = type_before and type_before ~= limiter_type
local limiter = {
  name = name,
  rate = rate,
  interval = interval,
  rate_type = limiter_type,
  keep_alive = keep_alive,
  value_key = limiter_type == '1' and client_value or value,
  permits_key = limiter_type == '1' and client_permits or permits,
  changes_settings = true,
  is_reset = changes_type or not keeps_permits,
}
if not limiter.is_reset then
  -- Before anything is written, because these commands fail on a key of another type.
  local text = redis.call('get', limiter.value_key)
  if redis.call('zcard', limiter.permits_key) > MOST_SUMMED then
    -- A missing value counts as 0.
    limiter.value = (window.integer(text or '') or 0) + (rate - (rate_before or rate))
    to_remove = 0
  end
end
-- Its error is ignored: the rate is set also if the score of a grant is unusable.
window.reconcile(limiter, now, false, math.huge)
if changes_type then
  window.prepare(limiter, value, client_value, permits, client_permits)
else
  window.prepare(limiter, limiter.value_key, limiter.permits_key)
end
if limiter.is_reset then
  limiter.stored_value = limiter.available -- a missing value stands for this
end
window.write(limiter, 0)
publish_freed(limiter.available)
return 1
