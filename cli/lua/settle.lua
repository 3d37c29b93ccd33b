-- Makes value + permits of all grants = rate, if nothing has changed since the grants were read.
-- Permits that a release returned without their grants are taken out of the oldest live grants.
--
-- KEYS    value, permits
-- ARGV    1  the value as it was read, '' if it was missing
--         2  how many grants there were
--         3  the oldest of them, '' if there was none
--         4  the newest of them, '' if there was none
--         5  rate less the permits of all grants
--         6  how many permits to take out of the live grants
--         7  the score of the newest grant that has expired, or any above it up to the oldest live
--            one
-- Returns 'changed': nothing was written; 'more': call again with what is stored now; 'done'
-- Writes  the value, with the time to live that it had, or that of the permits if it was missing.
--         Shrinks or removes at most 500 grants, and the fences of leases that it passes

local MOST_TAKEN = 500 -- members

local value, permits = KEYS[1], KEYS[2]
local number = redis.call('zcard', permits)
if (redis.call('get', value) or '') ~= ARGV[1] or number ~= tonumber(ARGV[2])
  or (redis.call('zrange', permits, 0, 0)[1] or '') ~= ARGV[3]
  or (redis.call('zrange', permits, -1, -1)[1] or '') ~= ARGV[4] then
  return 'changed'
end

local value_ttl = redis.call('pttl', ARGV[1] == '' and permits or value)
local wanted, taken = tonumber(ARGV[6]), 0
if wanted > 0 then
  local page = redis.call('zrangebyscore', permits, '(' .. ARGV[7], '+inf', 'withscores',
    'limit', 0, MOST_TAKEN)
  for i = 1, #page, 2 do
    local member = page[i]
    local held = 0
    if #member == 5 + (string.byte(member) or 0) then
      held = struct.unpack('<I', string.sub(member, -4))
    end
    if held > wanted - taken then
      local shrunk = string.sub(member, 1, -5) .. struct.pack('<I', held - (wanted - taken))
      if redis.call('zadd', permits, 'nx', page[i + 1], shrunk) == 1 then
        redis.call('zrem', permits, member)
        taken = wanted
      end
    elseif held > 0 then
      redis.call('zrem', permits, member)
      taken = taken + held
    elseif #member == 29 and string.byte(member) == 24 then
      -- The fence of a lease, whose length byte is 24. As long as it exists, no permits have been
      -- taken out of a later grant: see lua/README.md of the library.
      redis.call('zrem', permits, member)
    end
    if taken == wanted then
      break
    end
  end
  if taken < wanted and #page == 2 * MOST_TAKEN then
    return 'more'
  end
end
redis.call('set', value, string.format('%.0f', ARGV[5] + taken))
if value_ttl > 0 then
  redis.call('pexpire', value, value_ttl)
end
return 'done'
