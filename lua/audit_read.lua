-- Reads the next grants of a limiter for an audit: whether the permits left and those of all grants are the rate. It changes no
-- limiter. One client at a time audits a limiter, a page a call, with pauses, and audit_settle.lua ends it.
--
-- The audit's key is a list: the audit's id, then what other scripts changed since the last page, see `note_change` in
-- window.lua. It expires when its client is gone.
--
-- KEYS    permits, audit
-- ARGV    1  id of the audit
--         2  for how many ms the limiter is its alone
--         3  the last grant that it read, '' at first
-- Returns an array
--         'busy', ms          another client audits the limiter, or did lately
--         'lost'              the audit cannot go on
--         'read', place, count, permits, grant, score, changes…
--                             how many grants are before the page, how many in it, and their permits; the last of them, and
--                             its score; the changes
-- Writes  the audit's list

local permits, audit = KEYS[1], KEYS[2]
local id, life, last = ARGV[1], ARGV[2], ARGV[3]
local books = bookkeeping()

local owner = redis.call('lindex', audit, '0')
if last == '' and not owner then
  redis.call('rpush', audit, id)
elseif last == '' and owner ~= id then
  return { 'busy', redis.call('pttl', audit) }
elseif owner ~= id then
  return { 'lost' }
end
redis.call('pexpire', audit, life)

local place = 0
if last ~= '' then
  local rank = redis.call('zrank', permits, last)
  if not rank then
    return { 'lost' }
  end
  place = rank + 1
end
local page = redis.call('zrange', permits, books.digits(place), books.digits(place + PAGE - 1))
local changes = redis.call('lrange', audit, '1', '-1')
redis.call('ltrim', audit, '0', '0')
local newest = page[#page] or ''
local score = newest ~= '' and redis.call('zscore', permits, newest) or ''
return { 'read', books.digits(place), books.digits(#page), books.digits(books.sum(page)), newest, score, unpack(changes) }
