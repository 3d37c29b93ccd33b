-- Decides requests on several targets in one call, each by itself as the script of its policy decides it. A call costs the
-- server about as much as a decision.
--
-- KEYS    the keys of each target in turn, as the script of its policy takes them
-- ARGV    1  little-endian doubles in one string
--            1  deadline in ms of the server's clock, after which the call does nothing; NaN for none
--            2  now in ms, NaN for the server's clock
--         2… for each group of targets with the same policy
--            the policy: the name of a file in policies/, but not sliding_window_log or sliding_window_counter
--            little-endian doubles in one string: penalty in ms, as in shared/one_target.lua; the number of keys of a target
--            the policy's numbers, likewise
--            for each target the cost of its requests and how many there are of this cost, likewise
-- Returns an array with the reply for each target, as shared/one_target.lua returns it, or its error, which leaves the others
--         unaffected. After the deadline a string with the server's clock alone
-- Writes  as the script of the policy, for each target

--! include shared/limits.lua
--! include shared/policy.lua
--! include shared/whole.lua
--! include shared/finite.lua

local deadline, given_now = unpack_numbers('<dd', ARGV[1])

--! include shared/time.lua
if server_now > deadline then
  return pack('<d', server_now)
end

local call_id, more_runs = '', nil -- no policy of a call that is shared stores a call id
local decide = {}

--! each policy NAME
decide.NAME = function(KEYS, numbers, penalty, cost, times)
  --! include shared/one_target.lua lock
  --! include policies/NAME.lua read
  --! include shared/grant_runs.lua
  --! include policies/NAME.lua state
  --! include policies/NAME.lua write
end

--! end
-- Their calls have other bounds, and the log needs a call id.
decide.sliding_window_log, decide.sliding_window_counter = nil, nil

local replies, next_key, group, place = {}, 1, 2, 1
while ARGV[group] do
  local by_policy, numbers, requests, at = decide[ARGV[group]], ARGV[group + 2], ARGV[group + 3], 1
  local penalty, key_count = unpack_numbers('<dd', ARGV[group + 1])
  local keys = {}
  -- Decides the targets from `at` on, up to one that fails: to protect each by itself would take as long as a command.
  local function decide_on()
    while at < #requests do
      for i = 1, key_count do
        keys[i] = KEYS[next_key]
        next_key = next_key + 1
      end
      at = at + 16 -- before all that may fail, so that the list comes to its end
      local cost, times = unpack_numbers('<dd', requests, at - 16)
      replies[place] = by_policy(keys, numbers, penalty, cost, times)
      place = place + 1
    end
  end
  repeat
    local has_run, failure = pcall(decide_on)
    if not has_run then
      -- A failed command raises the text of its error, which begins with its code. Before Redis 7 the line of the script
      -- precedes it.
      local text = type(failure) == 'table' and failure.err or failure
      replies[place] = { err = string.find(text, '^%u+ ') and text or 'ERR ' .. text }
      place = place + 1
    end
  until has_run
  group = group + 4
end
return replies
