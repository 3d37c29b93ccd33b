-- What the scripts of one limiter share: reading its state and bringing it up to date.
-- script.rs puts this file in front of each of them, or where one says that it wants it; src/model.rs holds the same
-- steps in Rust.
--
-- Two facts carry all of it. A permit taken at T is back at T + interval, inclusive. And permits left + permits of all
-- grants in the zset = rate, also where the rate was lowered below what is in use: then the permits left are below zero.
-- The second one holds for grants that have expired too: they are removed, and their permits added to those left, from the
-- oldest on, as far as a request needs them and a few more. So no call's work grows with the number of grants.
--
-- Where a peer, an eviction or an operator touched one key and not the other, the second one is violated. With few grants
-- `settle` restores it, with many an audit (audit.lua).

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

  -- The integer that `text` writes as Redis writes one, or nil. tonumber alone reads much that INCRBY refuses: `5.0`,
  -- ` 5`, `0x5`, `05`, `+5`.
  local function integer(text)
    local number = tonumber(text)
    if number and number >= -LARGEST and number <= LARGEST and digits(number) == text then
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

  -- Whether the bytes of `member` come before `prefix` and all that begins with it. Lua's own comparison follows the
  -- server's locale.
  local function is_before(member, prefix)
    for i = 1, #prefix do
      local a, b = string.byte(member, i) or -1, string.byte(prefix, i)
      if a ~= b then
        return a < b
      end
    end
    return false
  end

  -- The grant that begins with `prefix`, its length byte and random bytes, among those of one score, or nil. They are
  -- ordered by their bytes, so few of them are read, however many there are.
  local function find_at(key, score, prefix)
    local first = redis.call('zcount', key, '-inf', '(' .. score)
    local last = first + redis.call('zcount', key, score, score)
    local low, high = first, last
    while low < high do
      local middle = math.floor((low + high) / 2)
      local member = redis.call('zrange', key, digits(middle), digits(middle))[1]
      if is_before(member, prefix) then
        low = middle + 1
      else
        high = middle
      end
    end
    local member = low < last and redis.call('zrange', key, digits(low), digits(low))[1]
    if member and string.sub(member, 1, #prefix) == prefix and permits_of(member) then
      return member
    end
  end

  -- The grant of a call that was scored from `from` to `to`, and its score; `member` is what the call would have left
  -- where all of it was granted. Reads a page at most: where there are more, and the grant is not among these, it
  -- returns nil, nil and the score from which to look on.
  local function find_call(key, member, from, to)
    local score = redis.call('zscore', key, member)
    if score then
      return member, score
    end
    local prefix = string.sub(member, 1, -5)
    local page = redis.call('zrangebyscore', key, digits(from), digits(to), 'withscores', 'limit', '0', PAGE)
    for i = 1, #page, 2 do
      if string.sub(page[i], 1, #prefix) == prefix and permits_of(page[i]) then
        return page[i], page[i + 1]
      end
    end
    if #page < 2 * PAGE then
      return
    end
    local last = math.floor(tonumber(page[#page]))
    if last > from then
      return nil, nil, last
    end
    -- The page is full of grants of one millisecond.
    local found = find_at(key, digits(from), prefix)
    if found then
      return found, digits(from)
    end
    if from < to then
      return nil, nil, from + 1
    end
  end

  -- Milliseconds until the first of the live grants are back, at most the interval.
  local function until_first(key, now, interval)
    local oldest = redis.call('zrangebyscore', key, '(' .. digits(now - interval), '+inf', 'withscores', 'limit', 0, 1)[2]
    return oldest and math.min(interval - now + math.floor(tonumber(oldest)), interval) or interval
  end

  -- The limiter's settings and the two keys that its type chooses: nil and an error where they cannot be used.
  -- Reads only, and not even that where the caller did and passes the hash's fields and the permits left.
  --
  -- `set_up` holds the settings that the limiter must have: rate, interval, type, keep alive, and whether a limiter that
  -- is there must have this keep alive too. The limiter that is returned has them; `sets_rate` tells that the hash has
  -- others, `starts_afresh` that there was none, or one of the other type, and nothing is in use.
  local function open(name, value, client_value, permits, client_permits, fields, text, set_up)
    local was_read = fields
    fields = fields or redis.call('hmget', name, 'rate', 'interval', 'type', 'keepAliveTime')
    local is_there = fields[1] and fields[2] and fields[3]
    if not (fields[1] or fields[2] or fields[3]) and redis.call('exists', name) == 1 then
      return nil, redis.error_reply('BADSTATE the hash is no rate limiter')
    end
    if set_up then
      if not is_there or fields[3] == digits(1 - set_up[3]) then
        local per_client = set_up[3] == 1
        return {
          name = name,
          rate = set_up[1],
          interval = set_up[2],
          rate_type = set_up[3],
          keep_alive = set_up[4],
          value_key = per_client and client_value or value,
          permits_key = per_client and client_permits or permits,
          sets_rate = true,
          starts_afresh = true,
        }
      end
    end
    if not is_there then
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
    local limiter = {
      name = name,
      rate = rate,
      interval = interval,
      rate_type = tonumber(fields[3]),
      keep_alive = keep_alive,
      value_key = value_key,
      permits_key = per_client and client_permits or permits,
      value = left, -- nil where the key is not there
      stored = left,
    }
    if set_up and (rate ~= set_up[1] or interval ~= set_up[2] or (set_up[5] == 1 and keep_alive ~= set_up[4])) then
      limiter.sets_rate = true
      limiter.rate, limiter.interval = set_up[1], set_up[2]
      if set_up[5] == 1 then
        limiter.keep_alive = set_up[4]
      end
      limiter.value = left and math.min(left + (limiter.rate - rate), limiter.rate)
      limiter.stored = nil
    end
    return limiter
  end

  -- Gives the limiter the settings that `open` was called with. Where it starts afresh, what an earlier limiter left in
  -- the other keys, which follow, is deleted.
  local function store_set_up(limiter, ...)
    redis.call('hset', limiter.name, 'rate', digits(limiter.rate), 'interval', digits(limiter.interval),
      'type', digits(limiter.rate_type), 'keepAliveTime', digits(limiter.keep_alive))
    if limiter.starts_afresh then
      redis.call('unlink', ...)
    end
  end

  -- Reads on through the expired grants, `most` of them at most, and counts what they hold as left.
  local function read_expired(limiter, most)
    local key, horizon = limiter.permits_key, digits(limiter.horizon)
    local count = 0
    if most > 0 then
      local expired = redis.call('zrangebyscore', key, '-inf', horizon, 'limit', digits(limiter.gone), digits(most))
      count = #expired
      to_remove = to_remove - count
      limiter.gone = limiter.gone + count
      limiter.freed = limiter.freed + sum(expired)
    end
    limiter.rest = count < most and 0 or redis.call('zcount', key, '-inf', horizon) - limiter.gone
  end

  -- What is left at `now`, once expired grants are removed, at least until `wanted` permits are there: nil, or an error where
  -- a grant's score cannot be used. Reads only, and adds to `limiter`:
  --   horizon    grants up to this score have expired
  --   gone       how many grants, the oldest, are to be removed
  --   rest       how many more have expired
  --   is_unused  whether all have
  --   balance    the permits left; below zero where more than the rate is in use
  --   oldest     score of the oldest live grant, nil where there is none
  --   used       permits of the grants that stay, where they were summed, less `excess`; else nil
  --   excess     permits that these grants hold although a peer's release gave them back
  --   counted    how many grants were summed, -1 where they are too many
  -- Summing grants costs time, so only few are summed, and only where it is needed: to replace a lost value, when `check`
  -- asks for it, and when others have expired and the numbers may not agree: because there are few, so that it costs
  -- nothing, or because already their number is too large. Where each holds one permit, their number is their sum.
  local function settle(limiter, now, check, wanted)
    local rate, value, key = limiter.rate, limiter.value, limiter.permits_key
    limiter.horizon = now - limiter.interval
    limiter.gone, limiter.rest, limiter.freed = 0, 0, 0
    limiter.excess = 0
    limiter.counted = 0
    limiter.balance = rate
    if limiter.starts_afresh then
      return
    end

    local oldest = redis.call('zrange', key, '0', '0', 'withscores')[2]
    if not oldest then
      return -- nothing is in use
    end
    local number = redis.call('zcard', key)
    if tonumber(oldest) <= limiter.horizon then
      oldest = redis.call('zrangebyscore', key, '(' .. digits(limiter.horizon), '+inf', 'withscores', 'limit', 0, 1)[2]
      if not oldest then
        limiter.gone, limiter.is_unused = number, true
        return
      end
      read_expired(limiter, math.min(SPARE, to_remove))
      if limiter.rest > 0 and (value or 0) + limiter.freed < wanted then
        read_expired(limiter, to_remove)
      end
    end

    limiter.oldest = math.floor(tonumber(oldest))
    if limiter.oldest >= LARGEST then
      return redis.error_reply('BADSTATE the score of a grant is no time')
    end
    local freed = limiter.freed
    limiter.balance = math.min((value or 0) + freed, rate)
    number = number - limiter.gone
    local must_sum = not value or check
    if limiter.gone > 0 and not must_sum then
      local room = rate - value - freed
      must_sum = number > room or (number <= FEW and number ~= room)
    end
    if must_sum and number > SUMMED then
      limiter.counted = -1
    elseif must_sum then
      local grants = redis.call('zrange', key, digits(limiter.gone), digits(limiter.gone + number - 1))
      local used = sum(grants)
      if value then
        -- What is left beside more grants than that leaves room for was raised by a peer's release. A peer that lowers
        -- the rate below what is in use writes 0, so what is above that is all that can be a release.
        local left = math.min(value, rate)
        limiter.excess = math.max(used - (rate - left), 0) -- exact up to 2^53
        if left >= 0 then
          limiter.excess = math.min(limiter.excess, left)
        end
      end
      limiter.used = used - limiter.excess
      limiter.balance = rate - limiter.used
      limiter.counted = #grants
    end
  end

  -- Whether more grants have expired than any call removes, and others have not.
  local function are_many_expired(limiter, now)
    if limiter.starts_afresh then
      return false
    end
    local expired = redis.call('zcount', limiter.permits_key, '-inf', digits(now - limiter.interval))
    return expired > SPARE and expired < redis.call('zcard', limiter.permits_key)
  end

  -- Whether a call has to end so that the next one goes on: more permits are there than it may count.
  local function is_unfinished(limiter, wanted)
    return limiter.rest > 0 and limiter.balance < wanted
  end

  -- Takes `permits` out of the oldest grants from the one at `place` on. Reads a page of them at most; returns how many it
  -- took, and whether there are more grants. The shrunk one is added before its old form goes, so that the key, and its time
  -- to live, stay.
  local function take_from_oldest(limiter, place, permits)
    local key, wanted = limiter.permits_key, permits
    local taken, without, shrunk = {}, {}, nil
    local read, has_more = 0, true
    while permits > 0 and has_more and read < PAGE do
      local some = math.min(64, PAGE - read)
      local from = place + read
      local page = redis.call('zrange', key, digits(from), digits(from + some - 1)) -- a score costs more than its member
      for i = 1, #page do
        local member = page[i]
        local held = permits_of(member) or 0
        if held == 0 then
          table.insert(without, member)
        elseif permits > 0 then
          if held > permits then
            shrunk = member
            redis.call('zadd', key, redis.call('zscore', key, member), pack(string.sub(member, 2, -5), held - permits))
          else
            table.insert(taken, member)
          end
          permits = math.max(permits - held, 0)
        end
      end
      read = read + #page
      has_more = #page == some
    end
    if #without == PAGE then
      taken = without -- they hold nothing, and would be in the way of every call
    elseif #without == 0 and #taken > 0 then
      -- They stand side by side. The new form of the shrunk one stands beside the old one, behind all of them.
      redis.call('zremrangebyrank', key, digits(place), digits(place + #taken - 1))
      taken = {}
    end
    if shrunk then
      table.insert(taken, shrunk)
    end
    if #taken > 0 then
      redis.call('zrem', key, unpack(taken))
    end
    return wanted - permits, has_more
  end

  -- Tells an audit that may be under way that `permits` were taken out of a grant that was not the oldest, all of them where
  -- `is_gone`. Where it would be too much to keep, the audit ends.
  local function note_change(audit, member, score, permits, is_gone)
    local change = table.concat({ score, digits(permits), is_gone and '1' or '0', member }, ' ')
    local kept = redis.pcall('rpushx', audit, change)
    if type(kept) == 'number' and kept > PAGE then
      redis.call('ltrim', audit, '0', '0')
      redis.call('lset', audit, '0', '')
    end
  end

  -- Ends an audit that may be under way.
  local function end_audit(audit)
    redis.pcall('lset', audit, '0', '')
  end

  -- Adds permits that came back out of live grants to the balance.
  local function credit(limiter, permits)
    if limiter.used then
      limiter.used = limiter.used - permits
      limiter.balance = limiter.rate - limiter.used
    else
      limiter.balance = math.min(limiter.balance + permits, limiter.rate)
    end
  end

  -- Whether the zset is deleted as a whole, so that the new grant has to be added after that. The server frees what it held
  -- beside its other work.
  local function is_deleted(limiter)
    return limiter.is_unused and limiter.gone > SPARE
  end

  -- Writes what settle found: the permits left, after `taken` of them were, and that expired grants are gone.
  local function write(limiter, taken)
    if limiter.balance ~= limiter.stored then
      redis.call('set', limiter.value_key, digits(limiter.balance - taken))
    elseif taken > 0 then
      redis.call('decrby', limiter.value_key, digits(taken))
    end
    if is_deleted(limiter) then
      redis.call('unlink', limiter.permits_key)
    elseif limiter.gone > 0 then
      redis.call('zremrangebyrank', limiter.permits_key, '0', digits(limiter.gone - 1))
    end
  end

  -- Keep alive where the limiter has one, else the time to live of the hash for the keys beside it. In its last
  -- millisecond the hash has 0 left; that would delete the others, and to leave it out would have them stay for ever.
  local function renew(limiter)
    if limiter.keep_alive > 0 then
      redis.call('pexpire', limiter.name, limiter.keep_alive)
      redis.call('pexpire', limiter.value_key, limiter.keep_alive)
      redis.call('pexpire', limiter.permits_key, limiter.keep_alive)
      return
    end
    local left = redis.call('pttl', limiter.name)
    if left >= 0 then
      left = math.max(left, 1)
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
    integer = integer,
    find_at = find_at,
    find_call = find_call,
    until_first = until_first,
    open = open,
    store_set_up = store_set_up,
    settle = settle,
    are_many_expired = are_many_expired,
    is_unfinished = is_unfinished,
    take_from_oldest = take_from_oldest,
    note_change = note_change,
    end_audit = end_audit,
    credit = credit,
    is_deleted = is_deleted,
    write = write,
    renew = renew,
  }
end
