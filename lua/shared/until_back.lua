-- When permits come back, if nobody else takes any: the live grants expire, the oldest first.
--
-- Uses    `key`, the permits key; `place`, the index of the oldest grant that counts; `missing`, how many permits must come back,
--         in ascending order; `most`, how many grants are read; `now`, `interval`
-- Sets    `until_back`, the ms for each of them. If these are in more grants than are read, until all are back. `back` and
--         `end_place`, for itself
-- Changes `place`

local until_back, back, end_place = {}, 0, place + most
while missing[#until_back + 1] and missing[#until_back + 1] <= 0 do
  until_back[#until_back + 1] = 0
end
while missing[#until_back + 1] and place < end_place do
  local last = string.format('%d', math.min(place + 100, end_place) - 1)
  local page = redis.call('zrange', key, string.format('%d', place), last) -- a score costs more than its member
  for i = 1, #page do
    local grant = page[i]
    --! include shared/held.lua
    back = back + held
    if missing[#until_back + 1] and missing[#until_back + 1] <= back then
      local score = redis.call('zscore', key, grant)
      repeat
        until_back[#until_back + 1] = math.max(interval - now + math.ceil(score), 0)
      until not missing[#until_back + 1] or missing[#until_back + 1] > back
    end
  end
  place = #page > 0 and place + #page or end_place
end
while missing[#until_back + 1] do
  local score = redis.call('zrange', key, '-1', '-1', 'withscores')[2]
  until_back[#until_back + 1] = score and math.max(interval - now + math.ceil(score), 0) or 0
end
