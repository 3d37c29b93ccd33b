-- Writes the fields of a token bucket.
--
-- Uses    `bucket`, `fields`, `tokens`, `refilled_at`, `fraction` of policies/token_bucket.lua;
--         `taken`, how many tokens are taken, negative if they are given back; `call`, `format`
-- Writes  tokens; last_refill_timestamp; last_refill_fraction, which is removed if it is 0
if fraction > 0 then
  call('hset', bucket, 'tokens', format('%d', tokens - taken),
    'last_refill_timestamp', format('%d', refilled_at),
    'last_refill_fraction', format('%d', fraction))
else
  call('hset', bucket, 'tokens', format('%d', tokens - taken),
    'last_refill_timestamp', format('%d', refilled_at))
  if fields[3] then
    call('hdel', bucket, 'last_refill_fraction')
  end
end
