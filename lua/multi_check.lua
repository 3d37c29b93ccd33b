-- Decides requests on several targets in one call, each target by itself as the script of its
-- policy decides it. A call costs the server about as much as a decision.
--
-- KEYS    the keys of each target in turn, as the script of its policy takes them
-- ARGV    1  little-endian doubles in one string
--            1  deadline in ms of the server's clock: later the call does nothing; NaN for none
--            2  now in ms, NaN for the server's clock
--         2… for each group of targets with the same policy, all but the first as doubles too
--            its policy: the name of a file in policies/, but not sliding_window_log or
--            sliding_window_counter
--            penalty in ms, as in shared/one_target.lua; the number of keys of a target
--            the policy's numbers
--            for each target the cost of its requests, and how many they are
-- Returns an array with the reply for each target, as shared/one_target.lua returns it, or its
--         error, which does not affect the others. After the deadline a string with the server's
--         clock alone
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

local call_id, more_runs = '', nil -- no policy that is decided here stores a call id
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

local replies = {}
local next_key, target, group = 1, 1, 2 -- the group's place in ARGV
while ARGV[group] do
  local decide_target = decide[ARGV[group]]
  local numbers, requests = ARGV[group + 2], ARGV[group + 3]
  local position = 1 -- in the requests
  local penalty, key_count = unpack_numbers('<dd', ARGV[group + 1])
  local keys = {}
  -- Decides the targets that are left, up to one that fails: a pcall for each would take as long as
  -- a command.
  local function decide_targets()
    while position < #requests do
      for i = 1, key_count do
        keys[i] = KEYS[next_key]
        next_key = next_key + 1
      end
      position = position + 16 -- before anything can fail, so that a failed target is passed
      local cost, times = unpack_numbers('<dd', requests, position - 16)
      replies[target] = decide_target(keys, numbers, penalty, cost, times)
      target = target + 1
    end
  end
  repeat
    local has_run, failure = pcall(decide_targets)
    if not has_run then
      -- A failed command raises the text of its error, which begins with its code; before Redis 7
      -- after the line of the script.
      local text = type(failure) == 'table' and failure.err or failure
      replies[target] = { err = string.find(text, '^%u+ ') and text or 'ERR ' .. text }
      target = target + 1
    end
  until has_run
  group = group + 4
end
return replies
