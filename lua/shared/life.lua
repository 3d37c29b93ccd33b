-- Extends the time to live of a key if it is too short for the caller's settings, whatever the call
-- decides. A call never shortens a time to live: callers with other settings, as while a service is
-- deployed, may need it. src/window/timed.rs has the same rule.
--
-- If the key has less than `needed_ttl` ms left, it gets `extended_ttl`, which may be more, so that
-- not each call has to write. A key that a peer left without a time to live gets none, unless
-- `gives_ttl`. Straight-line code: a function would cost each call as much as a command.
--
-- Uses    `life_key`; `key_exists`, whether that key does; `needed_ttl`, `extended_ttl`;
--         `gives_ttl`; `call`, `format`
-- Sets    `ttl_left`, the ms that the key has left after this, negative if it is missing or has no
--         time to live; `is_extended`. A key of the same life that the call writes gets the longest
--         of these ms, the needed ones, and those of a new key
local ttl_left = key_exists and call('pttl', life_key) or -2
local is_extended = ttl_left < needed_ttl and (ttl_left >= 0 or gives_ttl)
if is_extended then
  ttl_left = extended_ttl
  call('pexpire', life_key, format('%d', extended_ttl))
end
