-- The end of a script that has taken permits out of live grants, behind what shared/window.lua
-- prepares: the permits become available, and those that wait are told, unless the limiter is per
-- client.
--
-- Uses    `window`, `limiter`, `value` of shared/open_limiter.lua; `returned`, the permits
-- Sets    `publish_freed`

--! include shared/publish_freed.lua

window.credit(limiter, returned)
window.write(limiter, 0)
if returned > 0 and limiter.value_key == value then
  publish_freed(limiter.available)
end
