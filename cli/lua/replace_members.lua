-- Removes members of a sorted set, or replaces them by others with the same score.
--
-- KEYS    permits
-- ARGV    pairs: a member, and the member that replaces it, '' for none; at most 500 pairs
-- Returns how many of the members existed
-- Writes  these members. The key keeps its time to live, unless it becomes empty

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
