-- Gives back of a penalty_token_bucket what a request was charged, less what may have arrived with
-- the periods since: the capacity may have cut that off.
--
-- Returns `given_back`, the permits that were given back
-- Writes  the tokens, whose time to live stays
--
-- Uses    `tokens_key`, `tokens_text`, `used`, `is_first`, `quantity`, `period` of
--         policies/penalty_token_bucket.lua; `whole`; `cost`; `mark`, the time of the charge in ms;
--         `now`, `call`, `format`, `ceil`, `min`, `max`
local given_back = 0
if not is_first and tokens_text then
  given_back = max(min(cost - ceil(max(now - mark, 0) / period) * quantity, used), 0)
end
if given_back > 0 then
  -- Added to the stored tokens: each call adds the periods since the stored start itself. Tokens
  -- below 0 count as 0.
  call('incrby', tokens_key, format('%d', given_back + max(-whole(tokens_text), 0)))
end
