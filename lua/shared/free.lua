-- Ends a script that has taken permits out of live grants, after `prepare` of shared/window.lua:
-- makes the permits available, and tells the clients that wait, unless the limiter is per client.
--
-- Uses    `window`, `limiter`, `value` of shared/open_limiter.lua; `returned`, how many permits
-- Sets    `publish_freed`

--! include shared/publish_freed.lua

window.credit(limiter, returned)
window.write(limiter, 0)
if returned > 0 and limiter.value_key == value then
  publish_freed(limiter.available)
end
