-- How long a key lives: as long as what it holds counts under the settings of its callers. These may differ, such as while
-- a service is deployed. So a call never shortens a time to live, which another caller's settings may need; and it extends
-- one that is too short for its own settings, whatever it decides. src/window/expiry.rs holds the same rule.
--
-- Extends the time to live of the key `lasting` to `extended` ms if it is less than `needed`: where `extended` is more, a
-- call does not write it each time. A key that a peer left without one keeps none, unless `is_renewed`. Straight-line code:
-- a function would cost each call as much as a command.
--
-- Uses    `lasting`; `is_there`, whether that key exists; `needed`; `extended`; `is_renewed`; `call`, `format`
-- Sets    `left`, the ms that it has left then, negative if it has no time to live or does not exist; `is_extended`. A
--         further key of the same life, which the call writes, gets the longest of what is left, what is needed, and the
--         time to live of a new one
local left = is_there and call('pttl', lasting) or -2
local is_extended = left < needed and (left >= 0 or is_renewed)
if is_extended then
  left = extended
  call('pexpire', lasting, format('%d', extended))
end
