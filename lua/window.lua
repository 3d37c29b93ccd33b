-- What the scripts of one limiter share: reading its state and bringing it up to date.
-- script.rs puts this file in front of each of them, or where one says that it wants it; src/model.rs holds the same
-- steps in Rust.
--
-- Two facts carry all of it. A permit taken at T is back at T + interval, inclusive. And the books balance:
-- permits left + permits of the live grants = rate. Every function below that finds them out of balance,
-- because a peer, an eviction or an operator touched one key and not the other, settles them.

-- Returns the functions that read, settle and write a limiter.
local function bookkeeping()
  -- The caller's time where it passed one, else the server's, in milliseconds since the epoch.
  local function time_of(given)
    if given ~= '' then
      return tonumber(given)
    end
    local time = redis.call('time')
    return time[1] * 1000 + math.floor(time[2] / 1000)
  end

  -- `number` in digits only. A text that Lua makes of a large one has an exponent; a command's argument that Redis makes
  -- of a number is right, but takes it longer than this.
  local function digits(number)
    return string.format('%d', number)
  end

  -- A grant is one member: a length byte, that many random bytes, the permits as a little-endian u32.
  local function pack(random, permits)
    return struct.pack('<Bc0I', #random, random, permits)
  end

  -- The permits that `member` holds, or nil where it is no well-formed grant.
  local function permits_of(member)
    if #member ~= 5 + (string.byte(member) or 0) then
      return nil
    end
    local a, b, c, d = string.byte(member, -4, -1)
    return a + b * 256 + c * 65536 + d * 16777216
  end

  -- The whole number that `text` writes, or nil.
  local function integer(text)
    local number = tonumber(text)
    if number and number % 1 == 0 and number >= -LARGEST
        and (number < LARGEST or text == string.format('%.0f', LARGEST)) then
      return number
    end
  end

  local function sum(members)
    local total = 0
    for _, member in ipairs(members) do
      total = total + (permits_of(member) or 0)
    end
    return total
  end

  -- The limiter's settings and the two keys that its type chooses: nil and an error where they cannot be used.
  -- Reads only, and not even that where the caller did and passes the hash's fields and the permits left.
  local function open(name, value, client_value, permits, client_permits, fields, text)
    local was_read = fields
    fields = fields or redis.call('hmget', name, 'rate', 'interval', 'type', 'keepAliveTime')
    if not (fields[1] and fields[2] and fields[3]) then
      if not (fields[1] or fields[2] or fields[3]) and redis.call('exists', name) == 1 then
        return nil, redis.error_reply('BADSTATE the hash is no rate limiter')
      end
      return nil, redis.error_reply('UNINITIALIZED the rate limiter has no rate')
    end
    local rate, interval, keep_alive = integer(fields[1]), integer(fields[2]), integer(fields[4] or '0')
    if not (rate and interval and keep_alive and rate >= 0 and interval >= 0)
        or (fields[3] ~= '0' and fields[3] ~= '1') then
      return nil, redis.error_reply('BADSTATE the hash of the rate limiter holds a field that is not its kind of number')
    end
    local per_client = fields[3] == '1'
    local value_key = per_client and client_value or value
    if not was_read then
      text = redis.call('get', value_key)
    end
    local left = text and integer(text) or nil
    if text and not left then
      return nil, redis.error_reply('BADSTATE the permits left are not a whole number')
    end
    return {
      name = name,
      rate = rate,
      interval = interval,
      keep_alive = keep_alive,
      value_key = value_key,
      permits_key = per_client and client_permits or permits,
      value = left, -- nil where the key is not there
    }
  end

  -- What is left at `now`, once the grants whose window has passed are back. Reads only, and adds to `limiter`:
  --   horizon   grants up to this score are over
  --   expired   whether there are any
  --   balance   the permits left
  --   oldest    score of the oldest live grant, nil where there is none
  --   used      permits of the live grants where they were summed, less `excess`; else nil
  --   excess    permits that the live grants hold although a peer's release gave them back
  --   counted   how many live grants were summed; 0 also where they hold more than the rate, so that whoever goes by
  --             it has them summed again
  -- Summing the live grants costs time, so it is done only where it is needed: to replace a lost value, when `check`
  -- asks for it, and when others are over and the books may not balance: because there are few, so that it costs
  -- nothing, or because already their number is too large. Where each holds one permit, their number is their sum.
  local function settle(limiter, now, check)
    local rate, value, key = limiter.rate, limiter.value, limiter.permits_key
    limiter.horizon = now - limiter.interval
    limiter.expired = false
    limiter.excess = 0
    limiter.counted = 0

    local freed, gone = 0, 0
    local oldest = redis.call('zrange', key, '0', '0', 'withscores')
    if oldest[1] and tonumber(oldest[2]) <= limiter.horizon then
      limiter.expired = true
      oldest = redis.call('zrangebyscore', key, '(' .. digits(limiter.horizon), '+inf', 'withscores', 'limit', 0, 1)
      if oldest[1] then
        local over = redis.call('zrangebyscore', key, '-inf', limiter.horizon)
        freed, gone = sum(over), #over
      end
    end
    if not oldest[1] then
      limiter.balance = rate -- nothing is out, so everything is here
      return
    end

    limiter.oldest = math.floor(tonumber(oldest[2]))
    limiter.balance = math.min((value or 0) + freed, rate)
    local must_sum = not value or check
    if limiter.expired and not must_sum then
      local number = redis.call('zcard', key) - gone
      local room = rate - value - freed
      must_sum = number > room or (number <= FEW and number ~= room)
    end
    if must_sum then
      local live = redis.call('zrangebyscore', key, '(' .. digits(limiter.horizon), '+inf')
      local used = sum(live)
      -- What is left beside more grants than that leaves room for was raised by a peer's release.
      local left = math.max(math.min(value or 0, rate), 0)
      limiter.excess = math.min(math.max(used - (rate - left), 0), left)
      limiter.used = used - limiter.excess
      -- A rate that was lowered may be below what is in use.
      limiter.balance = math.max(rate - limiter.used, 0)
      limiter.counted = limiter.used <= rate and #live or 0
    end
  end

  -- Takes `permits` out of the oldest live grants and returns how many it found. The shrunk one is added before its old
  -- form goes, so that the key, and its time to live, stay.
  local function take_from_oldest(limiter, permits)
    local key, skipped = limiter.permits_key, 0
    local wanted = permits
    while permits > 0 do
      local oldest = redis.call('zrangebyscore', key, '(' .. digits(limiter.horizon), '+inf',
        'withscores', 'limit', skipped, 64)
      if not oldest[1] then
        break
      end
      for i = 1, #oldest, 2 do
        local member, score = oldest[i], oldest[i + 1]
        local held = permits_of(member) or 0
        if held == 0 or permits == 0 then
          skipped = skipped + 1
        else
          if held > permits then
            redis.call('zadd', key, score, pack(string.sub(member, 2, -5), held - permits))
          end
          redis.call('zrem', key, member)
          permits = math.max(permits - held, 0)
        end
      end
    end
    return wanted - permits
  end

  -- Adds permits that came back out of live grants to the balance.
  local function credit(limiter, permits)
    if limiter.used then
      limiter.used = limiter.used - permits
      limiter.balance = math.max(limiter.rate - math.max(limiter.used, 0), 0)
    else
      limiter.balance = math.min(limiter.balance + permits, limiter.rate)
    end
  end

  -- Writes what settle found: the permits left, after `taken` of them were, and the grants that are over.
  local function write(limiter, taken)
    if limiter.value == nil or limiter.balance ~= limiter.value then
      redis.call('set', limiter.value_key, limiter.balance - taken)
    elseif taken > 0 then
      redis.call('decrby', limiter.value_key, taken)
    end
    if limiter.expired then
      redis.call('zremrangebyscore', limiter.permits_key, '-inf', limiter.horizon)
    end
  end

  -- Keep alive where the limiter has one, else the time to live of the hash for the keys beside it.
  local function renew(limiter)
    if limiter.keep_alive > 0 then
      redis.call('pexpire', limiter.name, limiter.keep_alive)
      redis.call('pexpire', limiter.value_key, limiter.keep_alive)
      redis.call('pexpire', limiter.permits_key, limiter.keep_alive)
      return
    end
    local left = redis.call('pttl', limiter.name)
    if left > 0 then
      redis.call('pexpire', limiter.value_key, left)
      redis.call('pexpire', limiter.permits_key, left)
    end
  end

  return {
    time_of = time_of,
    pack = pack,
    permits_of = permits_of,
    digits = digits,
    sum = sum,
    open = open,
    settle = settle,
    take_from_oldest = take_from_oldest,
    credit = credit,
    write = write,
    renew = renew,
  }
end
