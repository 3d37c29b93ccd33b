-- Tells the clients that wait for permits of a limiter how many are available, after permits came
-- free otherwise than by the passing of time. Their channel is `{name}:freed`, or `name:freed` if
-- the name contains `{`: a sharded channel, in the slot of the keys. The message is the number of
-- permits, a space, and the id of the client that sends it. It is sent only if somebody has
-- subscribed, and from Redis 7 on. If the user lacks a permission, nothing fails or is logged.
--
-- Uses    nothing, but the value and the value of the client as the second and third key
-- Sets    `publish_freed`, a function of the available permits
local function publish_freed(available)
  local value, client_value = KEYS[2], KEYS[3]
  local channel = string.sub(value, 1, -6) .. 'freed' -- instead of `value`
  -- acl_check_cmd raises an error for an unknown command, and is missing before Redis 7.
  local function may(...)
    local is_known, is_permitted = pcall(redis.acl_check_cmd, ...)
    return is_known and is_permitted
  end
  if not may('pubsub', 'shardnumsub', channel) then
    return
  end
  local subscribers = redis.pcall('pubsub', 'shardnumsub', channel)[2]
  if subscribers and subscribers > 0 and available + 0 > 0 then
    -- The key of the client's value ends with a colon and the client's id.
    local message = string.format('%d', available) .. ' ' .. string.sub(client_value, #value + 2)
    if may('spublish', channel, message) then
      redis.pcall('spublish', channel, message)
    end
  end
end
