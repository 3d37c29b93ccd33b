-- Ends an audit: reads the grants that the audit has not read and corrects the value.
--
-- The audit has read the grants between two members, in pages. Those up to the first of these
-- members may have been removed since; those after the last one are new.
--
-- KEYS    name, value, permits, audit
-- ARGV    1  id of the audit
--         2  pause in ms during which no other audit may begin
--         3  a member that the audit has read, the first
--         4  how many grants follow it, up to ARGV[6]
--         5  their permits
--         6  the last member that was read
-- Returns an array
--         'lost'              the audit cannot continue
--         'changed', changes… as in audit_read.lua. Nothing was written: call again
--         'first'             ARGV[3] was removed. Nothing was written: call again with a later one
--         'more'              more grants are new than one call reads. Nothing was written:
--                             continue with audit_read.lua
--         'done', drift, rest by how much value + permits of all grants exceeded the rate; how many
--                             permits that a peer's release returned are still held by grants: pass
--                             these to release.lua
-- Writes  the value; shrinks or removes the oldest grants by what a peer's release returned; the
--         audit key

--! include shared/limits.lua
--! include shared/window.lua

local name, value, permits, audit = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, pause = ARGV[1], ARGV[2]
local first, between, sum_between, last = ARGV[3], ARGV[4] + 0, ARGV[5] + 0, ARGV[6]
local window = load_window()

if redis.call('lindex', audit, '0') ~= id then
  return { 'lost' }
end
local changes = redis.call('lrange', audit, '1', '-1')
if #changes > 0 then
  redis.call('ltrim', audit, '0', '0')
  return { 'changed', unpack(changes) }
end

local rate_text, value_text = redis.call('hmget', name, 'rate')[1], redis.call('get', value)
local rate, stored = window.integer(rate_text or ''), window.integer(value_text or '')
local first_place = redis.call('zrank', permits, first)
local last_place = redis.call('zrank', permits, last)
if not rate or (value_text and not stored) or not last_place then
  return { 'lost' }
elseif not first_place then
  return { 'first' }
elseif last_place - first_place ~= between then
  return { 'lost' }
end
local number = redis.call('zcard', permits)
if number - 1 - last_place > MOST_READ or first_place >= 2 * MOST_READ then
  return { 'more' }
end

local before = redis.call('zrange', permits, '0', window.digits(first_place))
local sum_before = window.sum(before)
local after = redis.call(
  'zrange', permits, window.digits(last_place + 1), window.digits(number - 1))
local in_use = sum_between + sum_before + window.sum(after)
local excess = stored and window.excess_of(stored, in_use, rate) or 0
local taken = window.take_from_oldest({ permits_key = permits }, 0, excess)
local available = rate - in_use + taken
if stored and available ~= stored then
  redis.call('incrby', value, window.digits(available - stored)) -- keeps the time to live
elseif not stored then
  redis.call('set', value, window.digits(available))
  local time_to_live = redis.call('pttl', name)
  if time_to_live >= 0 then
    redis.call('pexpire', value, math.max(time_to_live, 1))
  end
end
window.end_audit(audit)
redis.call('pexpire', audit, pause)
return { 'done', window.digits((stored or 0) + in_use - rate), window.digits(excess - taken) }
