-- The state of one rate limiter: how the scripts read it, bring it up to date and write it. src/window.rs holds the same
-- steps in Rust.
--
-- A permit taken at T is available again at T + interval, inclusive. The invariant: value + the permits of all grants in
-- the zset = rate. It holds for expired grants too, until a call removes them and adds their permits to the value. A call
-- removes only as many as its request needs and a few more, the oldest first, so its work does not grow with the number
-- of grants. If the rate was lowered below what is in use, the value is negative.
--
-- A peer's release, an eviction or an operator can change one key and not the other, which breaks the invariant. With few
-- grants `reconcile` restores it; with many an audit does (audit_read.lua, audit_reconcile.lua).
--
-- Uses    `LARGEST`, `ALWAYS_SUMMED`, `MOST_SUMMED`, `ALWAYS_REMOVED`, `MOST_READ`, `always_removed`,
--         `to_remove`
-- Sets    `load_window`, which returns the functions below as a table
-- Changes `to_remove`, less each expired grant that is read to be removed, and each grant that a peek reads
local function load_window()
  -- `given` in ms where the caller passed a time, else the server's clock in ms since the epoch.
  local function time_of(given)
    if given ~= '' then
      return tonumber(given)
    end
    local time = redis.call('time')
    return time[1] * 1000 + math.floor(time[2] / 1000)
  end

  -- `number` in decimal digits. Lua's own conversion writes large numbers with an exponent. Redis converts a number that
  -- is passed to a command correctly, but more slowly than this.
  local function digits(number)
    return string.format('%d', number)
  end

  -- The member of a grant.
  local function pack(random, permits)
    return struct.pack('<Bc0I', #random, random, permits)
  end

  -- The permits of `grant`; 0 where it is malformed.
  local function permits_of(grant)
    --! include shared/held.lua
    return held
  end

  -- The integer in `text`; nil where it is not in the form that Redis writes. tonumber alone accepts forms that INCRBY
  -- refuses: `5.0`, ` 5`, `0x5`, `05`, `+5`.
  local function integer(text)
    local number = tonumber(text)
    if number and number >= -LARGEST and number <= LARGEST and digits(number) == text then
      return number
    end
  end

  -- The permits of all `members`. Malformed ones count nothing.
  local function sum(members)
    local total = 0
    for _, member in ipairs(members) do
      total = total + permits_of(member)
    end
    return total
  end

  -- Whether `member` sorts before every member that begins with `prefix`, byte by byte. Lua's own comparison follows the
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

  -- The grant with this score that begins with `prefix`, its length byte and call id; nil where there is none.
  -- Members of one score are sorted by their bytes, so a binary search reads few of them.
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
    if member and string.sub(member, 1, #prefix) == prefix and permits_of(member) > 0 then
      return member
    end
  end

  -- The grant of a call that was scored from `from` to `to`, and its score. `member` is the grant that the call leaves
  -- where all of it is granted. Reads a page at most: where there are more and the grant is not among them, returns nil,
  -- nil and the score from which to continue.
  local function find_call(key, member, from, to)
    local score = redis.call('zscore', key, member)
    if score then
      return member, score
    end
    local prefix = string.sub(member, 1, 17) -- the length byte and the call id
    local page = redis.call('zrangebyscore', key, digits(from), digits(to), 'withscores', 'limit', '0', MOST_READ)
    for i = 1, #page, 2 do
      if string.sub(page[i], 1, #prefix) == prefix and permits_of(page[i]) > 0 then
        return page[i], page[i + 1]
      end
    end
    if #page < 2 * MOST_READ then
      return
    end
    local last = math.floor(tonumber(page[#page]))
    if last > from then
      return nil, nil, last
    end
    -- The page holds grants of one millisecond only.
    local found = find_at(key, digits(from), prefix)
    if found then
      return found, digits(from)
    end
    if from < to then
      return nil, nil, from + 1
    end
  end

  -- The score of the oldest live grant with permits; nil where there is none. `first` is the oldest live member, and its score.
  -- Those without permits, as the fences of leases are, are passed over: of those that are read, else the last of them counts.
  local function oldest_of(key, horizon, first)
    local place = 1
    if first[1] and permits_of(first[1]) == 0 then
      first = redis.call('zrangebyscore', key, '(' .. digits(horizon), '+inf', 'withscores', 'limit', 0, MOST_SUMMED)
      while first[place] and permits_of(first[place]) == 0 and place < 2 * MOST_SUMMED - 1 do
        place = place + 2
      end
    end
    return first[place + 1] and math.floor(tonumber(first[place + 1]))
  end

  -- Milliseconds until the oldest live grant expires, at most the interval; the interval where there is none.
  local function until_first(key, now, interval)
    local first = redis.call('zrangebyscore', key, '(' .. digits(now - interval), '+inf', 'withscores', 'limit', 0, 1)
    local oldest = oldest_of(key, now - interval, first)
    return oldest and math.min(interval - now + oldest, interval) or interval
  end

  -- The keep alive of a limiter that has `stored` and `interval`, and must have the settings `required` of `open`. nil for
  -- one that has none yet.
  local function keep_alive_of(stored, interval, required)
    if not stored or required[5] == 1 and required[4] == 0 then
      return required[4]
    elseif stored == 0 and required[5] == 0 then
      return 0
    end
    return math.max(stored == 0 and interval or stored, required[2], required[4])
  end

  -- The limiter's settings, the two keys that its type selects and the stored value; nil and an error where they are
  -- unusable. Only reads. A caller that has read the hash's fields and the value passes them.
  --
  -- `required` are the settings that a missing limiter gets: rate, interval, type, keep alive, and what becomes of an
  -- existing one. With 2 it stays as it is. With 0 or 1 the returned limiter has these settings, but a longer keep alive
  -- stays, and none is shorter than the interval; with 1 one without a keep alive gets one, no shorter than the interval
  -- before, or loses it. As shared/life.lua says, what the keys hold may count longer for another client. This holds for a
  -- limiter that is reset too, because clients with a longer interval may come back. Its field `changes_settings` is
  -- set where the hash has others; `is_reset` where there was no limiter, or one of the other type, so that nothing is in
  -- use; `needed` to the interval, which the keys must live at least.
  local function open(name, value, client_value, permits, client_permits, fields, text, required)
    local was_read = fields
    fields = fields or redis.call('hmget', name, 'rate', 'interval', 'type', 'keepAliveTime')
    local exists = fields[1] and fields[2] and fields[3]
    if not (fields[1] or fields[2] or fields[3]) and redis.call('exists', name) == 1 then
      return nil, redis.error_reply('BADSTATE the hash is not a rate limiter')
    end
    if required and required[5] == 2 and (fields[1] or fields[2] or fields[3]) then
      required = nil
    end
    if required and (not exists or fields[3] == digits(1 - required[3])) then
      local per_client = required[3] == 1
      return {
        name = name,
        rate = required[1],
        interval = required[2],
        rate_type = required[3],
        keep_alive = keep_alive_of(exists and integer(fields[4] or '0'), integer(fields[2] or '0') or 0, required),
        value_key = per_client and client_value or value,
        permits_key = per_client and client_permits or permits,
        changes_settings = true,
        is_reset = true,
        needed = required[2],
      }
    end
    if not exists then
      return nil, redis.error_reply('UNINITIALIZED the rate limiter has no rate')
    end
    local rate, interval, keep_alive = integer(fields[1]), integer(fields[2]), integer(fields[4] or '0')
    if not (rate and interval and keep_alive and rate >= 0 and interval >= 0)
        or (fields[3] ~= '0' and fields[3] ~= '1') then
      return nil, redis.error_reply('BADSTATE a field of the rate limiter is not an integer in its range')
    end
    local per_client = fields[3] == '1'
    local value_key = per_client and client_value or value
    if not was_read then
      text = redis.call('get', value_key)
    end
    local stored = text and integer(text) or nil
    if text and not stored then
      return nil, redis.error_reply('BADSTATE the value is not an integer')
    end
    local limiter = {
      name = name,
      rate = rate,
      interval = interval,
      rate_type = tonumber(fields[3]),
      keep_alive = keep_alive,
      value_key = value_key,
      permits_key = per_client and client_permits or permits,
      value = stored, -- under the required rate; nil where the key is missing
      stored = stored, -- what the key holds; nil where it must be written in any case
    }
    if required then
      limiter.needed = required[2]
      limiter.keep_alive = keep_alive_of(keep_alive, interval, required)
      if rate ~= required[1] or interval ~= required[2] or keep_alive ~= limiter.keep_alive then
        limiter.changes_settings = true
        limiter.rate, limiter.interval = required[1], required[2]
        limiter.value = stored and math.min(stored + (limiter.rate - rate), limiter.rate)
        limiter.stored = nil
      end
    end
    return limiter
  end

  -- Reads the next expired grants, `most` of them at most, and adds their permits to `expired_permits`.
  local function read_expired(limiter, most)
    local key, horizon = limiter.permits_key, digits(limiter.horizon)
    local count = 0
    if most > 0 then
      local expired = redis.call('zrangebyscore', key, '-inf', horizon, 'limit', digits(limiter.expired), digits(most))
      count = #expired
      to_remove = to_remove - count
      limiter.expired = limiter.expired + count
      limiter.expired_permits = limiter.expired_permits + sum(expired)
    end
    limiter.unread = count < most and 0 or redis.call('zcount', key, '-inf', horizon) - limiter.expired
  end

  -- Sums the permits of all expired grants, for a call that removes none. Reads as many as this call may remove at most, from
  -- the newest to the oldest, and the next call continues from there. Others may remove the oldest meanwhile: their permits
  -- are then part of the value. Returns whether all were read, and what the next call passes: the permits, the number of
  -- grants, and the oldest of them.
  local function sum_expired(limiter, now, permits, number, oldest)
    local key, horizon = limiter.permits_key, digits(now - limiter.interval)
    local all, expired = redis.call('zcard', key), redis.call('zcount', key, '-inf', horizon)
    if expired > MOST_READ and all - expired <= MOST_SUMMED then
      -- The live ones say what the others hold.
      local live = redis.call('zrange', key, digits(expired), digits(all))
      return true, limiter.rate - (limiter.value or 0) - sum(live)
    end
    local unread = oldest and redis.call('zrank', key, oldest)
    if not unread or expired - unread ~= number then
      unread, permits, number, oldest = expired, 0, 0, nil -- what was read has changed
    end
    local first = math.max(unread - to_remove, 0)
    if first < unread then
      local page = redis.call('zrange', key, digits(first), digits(unread - 1))
      permits, number, oldest = permits + sum(page), number + #page, page[1]
      to_remove = to_remove - #page
    end
    return first == 0, permits, number, oldest
  end

  -- How many of the permits that grants hold, `in_use`, a peer's release has returned: it raises the
  -- value and leaves the grants. A peer that lowers the rate below what is in use writes 0, so only
  -- what is above 0 can come from a release.
  local function excess_of(value, in_use, rate)
    local left = math.min(value, rate)
    local excess = math.max(in_use - (rate - left), 0) -- exact up to 2^53
    return left >= 0 and math.min(excess, left) or excess
  end

  -- Computes the available permits at `now`. Expired grants are read until `wanted` permits are available, or until this
  -- call may remove no more; or `expired_permits` is what they all hold. Only reads. Returns an error where the score of a
  -- grant is unusable, else nil, and sets in any case
  --   horizon    grants with at most this score have expired
  --   expired    how many grants, the oldest, are to be removed
  --   expired_permits  their permits
  --   unread     how many more have expired
  --   all_expired  whether every grant has
  --   available  the available permits; negative where more than the rate is in use
  --   oldest     score of the oldest live grant with permits, nil where there is none
  --   in_use     permits of the live grants without `excess`, nil where they were not summed
  --   excess     permits that these grants hold although a peer's release returned them
  --   summed     how many grants were summed, -1 where they are too many
  -- Live grants are summed where the value is missing, where `check` asks for it, and where others have expired and the
  -- invariant may not hold: because the grants are few, so that the sum costs little, or because their number alone
  -- exceeds the permits in use. Where each grant holds one permit, their number is their sum.
  local function reconcile(limiter, now, check, wanted, expired_permits)
    local rate, value, key = limiter.rate, limiter.value, limiter.permits_key
    limiter.horizon = now - limiter.interval
    limiter.expired, limiter.unread, limiter.expired_permits = 0, 0, 0
    limiter.excess = 0
    limiter.summed = 0
    limiter.available = rate
    if limiter.is_reset then
      return
    end

    local first = redis.call('zrange', key, '0', '0', 'withscores')
    if not first[1] then
      return -- nothing is in use
    end
    local number = redis.call('zcard', key)
    if tonumber(first[2]) <= limiter.horizon then
      first = redis.call('zrangebyscore', key, '(' .. digits(limiter.horizon), '+inf', 'withscores', 'limit', 0, 1)
      if not first[1] then
        limiter.expired, limiter.all_expired = number, true
        return
      end
      if expired_permits then
        limiter.expired = redis.call('zcount', key, '-inf', digits(limiter.horizon))
        limiter.expired_permits = expired_permits
      else
        read_expired(limiter, math.min(always_removed, to_remove))
        if limiter.unread > 0 and (value or 0) + limiter.expired_permits < wanted then
          read_expired(limiter, to_remove)
        end
      end
    end

    limiter.oldest = oldest_of(key, limiter.horizon, first)
    local expired_permits = limiter.expired_permits
    limiter.available = math.min((value or 0) + expired_permits, rate)
    number = number - limiter.expired
    local must_sum = not value or check
    if limiter.expired > 0 and not must_sum then
      local in_use = rate - value - expired_permits
      must_sum = number > in_use or (number <= ALWAYS_SUMMED and number ~= in_use)
    end
    if must_sum and number > MOST_SUMMED then
      limiter.summed = -1
    elseif must_sum then
      local grants = redis.call('zrange', key, digits(limiter.expired), digits(limiter.expired + number - 1))
      local in_use = sum(grants)
      limiter.excess = value and excess_of(value, in_use, rate) or 0
      limiter.in_use = in_use - limiter.excess
      limiter.available = rate - limiter.in_use
      limiter.summed = #grants
    end
    if limiter.oldest and limiter.oldest >= LARGEST then
      return redis.error_reply('BADSTATE the score of a grant is not a time')
    end
  end

  -- Whether more grants have expired than any call removes, while others are live.
  local function has_many_expired(limiter, now)
    if limiter.is_reset then
      return false
    end
    local expired = redis.call('zcount', limiter.permits_key, '-inf', digits(now - limiter.interval))
    return expired > always_removed and expired < redis.call('zcard', limiter.permits_key)
  end

  -- Milliseconds until `permits` are available, at most the rate, if nobody else takes any: until so many of the live grants have
  -- expired. If these are more than `most`, until all have.
  local function until_available(limiter, now, permits, most)
    local missing, key = { permits - limiter.available + limiter.excess }, limiter.permits_key
    local place, interval = limiter.expired, limiter.interval
    --! include shared/until_back.lua
    return until_back[1]
  end

  -- Whether the request has to be sent again: expired grants that this call may not remove hold permits that it needs.
  local function is_unfinished(limiter, wanted)
    return limiter.unread > 0 and limiter.available < wanted
  end

  -- Leaves `permits` in `member`, a grant that has this score then, and `id` if it is given. Returns whether it has that id,
  -- or keeps its own. If a call was granted twice,
  -- its other grant may hold as many permits, and equal members would be one: then this one gets another id, which ends
  -- with a number. The new form is added before the old one is removed, so that the key and its time to live stay.
  local function shrink(key, score, member, permits, id)
    id = id or string.sub(member, 2, -5)
    local random, number = id, 0
    while redis.call('zadd', key, 'nx', score, pack(random, permits)) == 0 do
      number = number + 1
      random = string.sub(id, 1, 16) .. struct.pack('<I', number) -- no longer than this: its length is one byte
    end
    redis.call('zrem', key, member)
    return random == id
  end

  -- Takes `permits` out of the oldest grants from the one at index `place` on, and removes the members without permits that it
  -- passes: the fences of leases (shared/fence.lua). Reads a page at most. Returns how many it took, and whether there are more
  -- grants.
  local function take_from_oldest(limiter, place, permits)
    local key, wanted = limiter.permits_key, permits
    local gone, shrunk, left = 0, nil, nil
    local read, has_more = 0, true
    while permits > 0 and has_more and read < MOST_READ do
      local some = math.min(64, MOST_READ - read)
      local from = place + read
      local page = redis.call('zrange', key, digits(from), digits(from + some - 1)) -- a score costs more than its member
      for i = 1, #page do
        if permits > 0 then
          local held = permits_of(page[i])
          if held > permits then
            shrunk, left = page[i], held - permits
          else
            gone = gone + 1
          end
          permits = math.max(permits - held, 0)
        end
      end
      read = read + #page
      has_more = #page == some
    end
    if gone > 0 then
      redis.call('zremrangebyrank', key, digits(place), digits(place + gone - 1))
    end
    if shrunk then
      shrink(key, redis.call('zscore', key, shrunk), shrunk, left)
    end
    return wanted - permits, has_more
  end

  -- Records for a running audit that `permits` were taken out of a grant that was not the oldest; `is_removed` where the
  -- grant was removed. Ends the audit where it would have to hold too many changes.
  local function note_change(audit, member, score, permits, is_removed)
    local change = table.concat({ score, digits(permits), is_removed and '1' or '0', member }, ' ')
    local kept = redis.pcall('rpushx', audit, change)
    if type(kept) == 'number' and kept > MOST_READ then
      redis.call('ltrim', audit, '0', '0')
      redis.call('lset', audit, '0', '')
    end
  end

  -- Ends a running audit.
  local function end_audit(audit)
    redis.pcall('lset', audit, '0', '')
  end

  -- Adds permits that were taken out of live grants to the available ones. Where a peer's release has returned them too, what
  -- remains holds less than the excess.
  local function credit(limiter, permits)
    if limiter.in_use then
      limiter.in_use = math.max(limiter.in_use - permits, 0)
      limiter.available = limiter.rate - limiter.in_use
    else
      limiter.available = math.min(limiter.available + permits, limiter.rate)
    end
  end

  -- Writes what comes before a new grant: the settings that `open` was called with, and the grants
  -- without the excess. Where the limiter is reset, deletes the keys that follow, with what an
  -- earlier one left in them. Where all grants have expired and are many, deletes
  -- them together: the server frees a deleted key in the background.
  local function prepare(limiter, ...)
    if limiter.changes_settings then
      redis.call('hset', limiter.name, 'rate', digits(limiter.rate), 'interval', digits(limiter.interval),
        'type', digits(limiter.rate_type), 'keepAliveTime', digits(limiter.keep_alive))
      if limiter.is_reset then
        redis.call('unlink', ...)
      end
    end
    take_from_oldest(limiter, limiter.expired, limiter.excess)
    limiter.is_deleted = limiter.all_expired and limiter.expired > ALWAYS_REMOVED
    if limiter.is_deleted then
      redis.call('unlink', limiter.permits_key)
    end
  end

  -- Writes what `reconcile` computed, behind `prepare` and a grant of `taken` permits, and renews the
  -- times to live.
  local function write(limiter, taken)
    local call, renews, needed = redis.call, true, limiter.needed or 0
    local name, value_key, permits_key = limiter.name, limiter.value_key, limiter.permits_key
    local available, stored, taken_text = limiter.available, limiter.stored, digits(taken)
    local expired, all_expired = limiter.is_deleted and 0 or limiter.expired, limiter.all_expired
    local keep_alive = limiter.keep_alive > 0 and limiter.keep_alive or nil
    --! include shared/write.lua
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
    until_available = until_available,
    open = open,
    sum_expired = sum_expired,
    reconcile = reconcile,
    has_many_expired = has_many_expired,
    is_unfinished = is_unfinished,
    shrink = shrink,
    take_from_oldest = take_from_oldest,
    note_change = note_change,
    end_audit = end_audit,
    credit = credit,
    excess_of = excess_of,
    prepare = prepare,
    write = write,
  }
end
