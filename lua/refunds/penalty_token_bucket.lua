-- Gives back of a penalty_token_bucket what a request was charged, less what may have come with the periods since, which may
-- have been clipped at the capacity.
--
-- Returns `back`, the permits that were given back
-- Writes  the tokens, which live on as long
--
-- Uses    `tokens_key`, `tokens_text`, `used`, `is_first`, `quantity`, `period` of
--         policies/penalty_token_bucket.lua; `whole`; `cost`; `mark`, the time of the charge in ms;
--         `now`, `call`, `format`, `ceil`, `min`, `max`
local back = 0
if not is_first and tokens_text then
  back = max(min(cost - ceil(max(now - mark, 0) / period) * quantity, used), 0)
end
if back > 0 then
  -- Added to the stored tokens: each call counts the periods since their start itself.
  call('incrby', tokens_key, format('%d', back + max(-whole(tokens_text), 0)))
end
