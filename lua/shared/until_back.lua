-- Finds when permits come back, if nobody else takes any: the live grants expire, the oldest first.
--
-- Uses    `key`, the permits key; `place`, the index of the oldest grant that counts; `missing`,
--         how many permits must come back, an ascending array; `most`, how many grants are read;
--         `now`, `interval`
-- Sets    `until_back`, the ms for each number in that array: those until all grants are back, if
--         the grants that are read hold too few. `walked`, `end_place`, for itself
-- Changes `place`

local until_back = {}
local walked = 0 -- the permits of the grants that were read
local end_place = place + most
while missing[#until_back + 1] and missing[#until_back + 1] <= 0 do
  until_back[#until_back + 1] = 0
end
while missing[#until_back + 1] and place < end_place do
  local last = string.format('%d', math.min(place + 100, end_place) - 1)
  -- Without scores, which cost more than the members.
  local page = redis.call('zrange', key, string.format('%d', place), last)
  for i = 1, #page do
    local grant = page[i]
    --! include shared/held.lua
    walked = walked + held
    if missing[#until_back + 1] and missing[#until_back + 1] <= walked then
      local score = redis.call('zscore', key, grant)
      repeat
        until_back[#until_back + 1] = math.max(interval - now + math.ceil(score), 0)
      until not missing[#until_back + 1] or missing[#until_back + 1] > walked
    end
  end
  place = #page > 0 and place + #page or end_place
end
while missing[#until_back + 1] do
  local score = redis.call('zrange', key, '-1', '-1', 'withscores')[2]
  until_back[#until_back + 1] = score and math.max(interval - now + math.ceil(score), 0) or 0
end
