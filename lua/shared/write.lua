-- Writes what a call has computed of a limiter, after the new grant was added: the value; removes
-- expired grants, so that value + the permits of all grants = rate holds again; and renews the
-- times to live: the keep alive on all keys, or else the hash's own on value and permits.
-- Straight-line code: a function would cost each call as much as a command.
--
-- Uses    `name`, `value_key`, `permits_key`; `available`, the permits before the new grant;
--         `stored_value`, what the value's key holds; `taken`, the permits of the new grant, and
--         `taken_text`, the same in decimal digits; `expired`, how many grants, the oldest, are
--         removed; `all_expired`, whether all but the new one have expired; `keep_alive` in ms, nil
--         for none; `renews`, whether times to live are renewed without a keep alive; `needed_ttl`,
--         the ms that the hash must live at least; `call`
-- Sets    nothing

if available ~= stored_value then
  call('set', value_key, string.format('%d', available - taken))
elseif taken > 0 then
  call('decrby', value_key, taken_text)
end
if expired > 0 then
  local last = expired == 1 and '0' or string.format('%d', expired - 1)
  call('zremrangebyrank', permits_key, '0', last)
end
if keep_alive then
  call('pexpire', name, keep_alive)
  call('pexpire', value_key, keep_alive)
  call('pexpire', permits_key, keep_alive)
elseif renews then
  if all_expired then
    call('persist', permits_key) -- its time to live was that of the grants before
  end
  local format, life_key, key_exists, gives_ttl = string.format, name, true, false
  local extended_ttl = needed_ttl
  --! include shared/life.lua
  if ttl_left >= 0 then
    -- In its last millisecond the hash has 0 left, which would delete the others.
    local time_to_live = math.max(ttl_left, 1)
    call('pexpire', value_key, time_to_live)
    call('pexpire', permits_key, time_to_live)
  end
end
