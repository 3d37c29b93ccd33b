-- Reads the next page of a limiter's grants for an audit, which checks the invariant: value +
-- permits of all grants = rate.
--
-- One client at a time audits a limiter, one page a call, with pauses between the calls;
-- audit_reconcile.lua ends the audit. The audit key is a list: the audit's id, then the changes
-- that other scripts have made since the last page (`note_change` in shared/window.lua). It expires
-- when its client stops calling.
--
-- KEYS    permits, audit
-- ARGV    1  id of the audit
--         2  lease in ms: no other client may audit the limiter for so long
--         3  the last member that was read, '' for the first page
-- Returns an array
--         'busy', ms          another client audits the limiter, or did recently: call again after
--                             so many ms
--         'lost'              the audit cannot continue
--         'read', place, count, permits, member, score, changes…
--                             the number of grants before the page and in it, and their permits;
--                             the page's last member and its score, '' if the page is empty; the
--                             changes
-- Writes  the audit key

--! include shared/limits.lua
--! include shared/window.lua

local permits, audit = KEYS[1], KEYS[2]
local id, lease, last = ARGV[1], ARGV[2], ARGV[3]
local window = load_window()

local owner = redis.call('lindex', audit, '0')
if last == '' and not owner then
  redis.call('rpush', audit, id)
elseif last == '' and owner ~= id then
  return { 'busy', redis.call('pttl', audit) }
elseif owner ~= id then
  return { 'lost' }
end
redis.call('pexpire', audit, lease)

local place = 0
if last ~= '' then
  local rank = redis.call('zrank', permits, last)
  if not rank then
    return { 'lost' }
  end
  place = rank + 1
end
local page_end = window.digits(place + MOST_READ - 1)
local page = redis.call('zrange', permits, window.digits(place), page_end)
local changes = redis.call('lrange', audit, '1', '-1')
redis.call('ltrim', audit, '0', '0')
local newest = page[#page] or ''
local score = newest ~= '' and redis.call('zscore', permits, newest) or ''
local sum = window.sum(page)
return {
  'read', window.digits(place), window.digits(#page), window.digits(sum), newest, score,
  unpack(changes)
}
