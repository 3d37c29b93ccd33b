-- Gives back what a call took and was not delivered, for a caller that is gone: once no attempt of the call can arrive any more.
--
-- KEYS    name, value, value of the client, permits, permits of the client, audit
-- ARGV    1  now in ms, or '' for the server's clock
--         2  the last deadline of the call's attempts, in ms of the server's clock
--         3  member of the grant as where all was granted; its random bytes name the call
--         4  the earliest time, in ms, that the call can have been scored with
--         5  the latest
--         6  the rate at which this caller had the grants audited lately, '' where it did not
--         7  the score of the grant that was delivered, which stays; '' where none was
-- Returns a string: two little-endian doubles, the server's clock in ms and a number, then what that is
--         'done'   how many permits came back: 0 where the call took nothing, or its window has passed
--         'early'  ms until the deadline has passed; nothing was done
--         'more'   the score from which to look on, as ARGV[4]; nothing was done
-- Errors  UNINITIALIZED, BADSTATE
-- Writes  as refund.lua, for the whole grant

local books = bookkeeping()
local name, value, client_value, permits, client_permits, audit = unpack(KEYS)
local now, deadline, member = books.time_of(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local from, to, audited_rate = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local delivered = tonumber(ARGV[7])

local server_now = books.time_of('')
local function answer(number, kind)
  return struct.pack('<dd', server_now, number) .. kind
end
if server_now <= deadline then
  return answer(deadline - server_now + 1, 'early')
end

local limiter, failure = books.open(name, value, client_value, permits, client_permits)
if failure then
  return failure
end
local found, score, more = books.find_call(limiter.permits_key, member, from, to)
if more then
  return answer(more, 'more')
end
if not found or tonumber(score) == delivered or tonumber(score) <= now - limiter.interval then
  return answer(0, 'done')
end
failure = books.settle(limiter, now, audited_rate ~= limiter.rate, 0)
if failure then
  return failure
end
local held = books.permits_of(found)
redis.call('zrem', limiter.permits_key, found)
books.note_change(audit, found, score, held, true)
books.take_from_oldest(limiter, limiter.gone, limiter.excess)
books.credit(limiter, held)
books.write(limiter, 0)
books.renew(limiter)
return answer(held, 'done')
