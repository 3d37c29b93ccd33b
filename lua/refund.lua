-- Gives the permits of one grant back, exactly and once.
--
-- KEYS    name, value, value of the client, permits, permits of the client
-- ARGV    1  now in ms, or '' for the server's clock
--         2  score of the grant
--         3  random bytes of the grant
--         4  permits to give back
-- Returns how many permits came back: fewer than asked where others released part of the grant, 0 where its
--         window has passed
-- Errors  UNINITIALIZED, BADSTATE
-- Writes  the member shrinks or goes, and the permits left rise by as much, at most to the rate

local name, value, client_value, permits, client_permits = unpack(KEYS)
local now, score, random, refunded = time_of(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])

local limiter, failure = open(name, value, client_value, permits, client_permits)
if failure then
  return failure
end
if tonumber(score) <= now - limiter.interval then
  return 0
end

local prefix = string.char(#random) .. random
for _, member in ipairs(redis.call('zrangebyscore', limiter.permits_key, score, score)) do
  local held = permits_of(member)
  if held and string.sub(member, 1, #prefix) == prefix then
    local back = math.min(refunded, held)
    if held > back then
      redis.call('zadd', limiter.permits_key, score, pack(random, held - back))
    end
    redis.call('zrem', limiter.permits_key, member)
    if limiter.value then
      -- A lost value needs nothing here: the next acquire works it out from the grants.
      redis.call('incrby', limiter.value_key, digits(math.min(back, limiter.rate - limiter.value)))
    end
    return back
  end
end
return 0
