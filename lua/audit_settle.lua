-- Ends an audit: reads what the audit could not know before, and sets the permits left right.
--
-- The audit knows the grants between two of them, which it read in pages. The grants up to the first of the two may have
-- expired since, those behind the second one are new.
--
-- KEYS    name, value, permits, audit
-- ARGV    1  id of the audit
--         2  for how many ms no other audit shall begin
--         3  a grant
--         4  how many grants come behind it, up to ARGV[6]
--         5  their permits
--         6  the last grant that was read
-- Returns an array
--         'lost'              the audit cannot go on
--         'changed', changes… see audit_read.lua. Nothing was done: ask again
--         'first'             ARGV[3] is gone. Nothing was done: ask again with a later one
--         'more'              more new grants than a call reads. Nothing was done: read on
--         'done', drift, rest by how much the permits left and those of the grants were more than the rate; and how many of
--                             these a peer's release gave back that have not been taken out of the grants: they are to be
--                             released with release.lua
-- Writes  the permits left; the oldest grants shrink or go where a peer's release gave permits back and left the grants as
--         they were; the audit's list

local name, value, permits, audit = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, pause, first, between, sum_between, last = ARGV[1], ARGV[2], ARGV[3], ARGV[4] + 0, ARGV[5] + 0, ARGV[6]
local books = bookkeeping()

if redis.call('lindex', audit, '0') ~= id then
  return { 'lost' }
end
local changes = redis.call('lrange', audit, '1', '-1')
if #changes > 0 then
  redis.call('ltrim', audit, '0', '0')
  return { 'changed', unpack(changes) }
end

local fields, text = redis.call('hmget', name, 'rate', 'keepAliveTime'), redis.call('get', value)
local rate, left = books.integer(fields[1] or ''), books.integer(text or '')
local first_place, last_place = redis.call('zrank', permits, first), redis.call('zrank', permits, last)
if not rate or (text and not left) or not last_place then
  return { 'lost' }
elseif not first_place then
  return { 'first' }
elseif last_place - first_place ~= between then
  return { 'lost' }
end
local number = redis.call('zcard', permits)
if number - 1 - last_place > PAGE or first_place >= 2 * PAGE then
  return { 'more' }
end

local used = sum_between + books.sum(redis.call('zrange', permits, '0', books.digits(first_place)))
  + books.sum(redis.call('zrange', permits, books.digits(last_place + 1), books.digits(number - 1)))
local balance, excess = rate - used, 0
if left then
  -- As `settle` in window.lua.
  local most = math.min(left, rate)
  excess = math.max(used + most - rate, 0)
  if most >= 0 then
    excess = math.min(excess, most)
  end
end
local taken = books.take_from_oldest({ permits_key = permits }, 0, excess)
balance = balance + taken
if left and balance ~= left then
  redis.call('incrby', value, books.digits(balance - left)) -- which keeps the time to live
elseif not left then
  redis.call('set', value, books.digits(balance))
  local life = redis.call('pttl', name)
  if life >= 0 then
    redis.call('pexpire', value, math.max(life, 1))
  end
end
redis.call('lset', audit, '0', '')
redis.call('pexpire', audit, pause)
return { 'done', books.digits((left or 0) + used - rate), books.digits(excess - taken) }
