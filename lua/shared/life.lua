-- How long a key lives: as long as what it holds counts under the settings of its callers. These may differ, such as while
-- a service is deployed. So a call never shortens a time to live, which another caller's settings may need; and it extends
-- one that is too short for its own settings, whatever it decides. src/model/expiry.rs holds the same rule.

-- Extends the time to live of `key` to `needed` ms. A key that a peer left without one keeps none. Returns what is left of
-- it then, negative if there is none, and whether it was extended. A key that is written gets the longest of what is left,
-- what is needed, and the time to live of a new one.
local function outlive(key, needed)
  local left = redis.call('pttl', key)
  if left < 0 or left >= needed then
    return left, false
  end
  redis.call('pexpire', key, string.format('%d', needed))
  return needed, true
end
