-- Removes members of a sorted set, or writes them in another form with the score that they have.
--
-- KEYS    permits
-- ARGV    in turn a member and what takes its place, '' for nothing; 500 of both at most
-- Returns how many were there
-- Writes  these members. The key keeps its time to live, unless nothing is left of it

local found = 0
for i = 1, math.min(#ARGV, 1000), 2 do
  local score = redis.call('zscore', KEYS[1], ARGV[i])
  if score then
    if ARGV[i + 1] ~= '' then
      redis.call('zadd', KEYS[1], 'nx', score, ARGV[i + 1])
    end
    redis.call('zrem', KEYS[1], ARGV[i])
    found = found + 1
  end
end
return found
