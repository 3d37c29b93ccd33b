-- Writes what a call has computed of a limiter, behind the grant that it has added: the value, and
-- the expired grants that are removed, so that value + the permits of all grants = rate holds
-- again; and the times to live, the keep alive on all keys, else the hash's own on value and
-- permits.
-- Straight-line code: a function would cost each call as much as a command.
--
-- Uses    `name`, `value_key`, `permits_key`; `available`, the permits before the new grant;
--         `stored`, what the value's key holds; `taken`, the permits of the new grant, and
--         `taken_text`, the same in decimal digits; `expired`, how many grants, the oldest, are
--         removed; `all_expired`, whether all have but the new one; `keep_alive`, nil for none;
--         `renews`, whether the times to live are renewed where there is none; `needed`, the ms
--         that the hash must live at least; `call`
-- Sets    nothing

if available ~= stored then
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
    call('persist', permits_key) -- the time to live of the grants before goes with them
  end
  local format, lasting, is_there, is_renewed, extended = string.format, name, true, false, needed
  --! include shared/life.lua
  if left >= 0 then
    -- In its last millisecond the hash has 0 left, which would delete the others.
    local time_to_live = math.max(left, 1)
    call('pexpire', value_key, time_to_live)
    call('pexpire', permits_key, time_to_live)
  end
end
