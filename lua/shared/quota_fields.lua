-- Writes the fields of a quota bucket: all of them, because a peer reads the policy's numbers too.
--
-- Uses    `bucket`, `fields`, `tokens`, `refilled_at`, `fraction`, `limit`, `rate`, `period` of
--         policies/quota_bucket.lua; `taken`, how many tokens are taken, negative if they are given
--         back; `call`, `format`
-- Writes  capacity, quota, period; remain; timestamp; timestamp_fraction, which is removed if it is
--         0
call('hset', bucket, 'capacity', format('%d', limit), 'remain', format('%d', tokens - taken),
  'period', format('%d', period), 'quota', format('%d', rate),
  'timestamp', format('%d', refilled_at))
if fraction > 0 then
  call('hset', bucket, 'timestamp_fraction', format('%d', fraction))
elseif fields[3] then
  call('hdel', bucket, 'timestamp_fraction')
end
