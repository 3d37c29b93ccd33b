-- Tells the clients that wait for permits of a limiter how many are available, when others have come free than those whose
-- interval has passed. Their channel is `{name}:freed`, or `name:freed` if the name contains `{`: a sharded channel, in the
-- slot of the keys. The message is the number of permits and, after a space, the id of the client that sends it. It is sent
-- only if somebody has subscribed. A server before Redis 7 has no such channels. Nothing fails, and nothing is logged, where
-- the user lacks a permission.
--
-- Uses    nothing, but the value and the value of the client as the second and third key
-- Sets    `publish_freed`, a function of the available permits
local function publish_freed(available)
  local value, client_value = KEYS[2], KEYS[3]
  local channel = string.sub(value, 1, -6) .. 'freed'
  -- The function raises an error for an unknown command, and is missing before Redis 7.
  local function may(...)
    local is_known, is_permitted = pcall(redis.acl_check_cmd, ...)
    return is_known and is_permitted
  end
  if not may('pubsub', 'shardnumsub', channel) then
    return
  end
  local subscribers = redis.pcall('pubsub', 'shardnumsub', channel)[2]
  if subscribers and subscribers > 0 and available + 0 > 0 then
    local message = string.format('%d', available) .. ' ' .. string.sub(client_value, #value + 2)
    if may('spublish', channel, message) then
      redis.pcall('spublish', channel, message)
    end
  end
end
