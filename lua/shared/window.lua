-- The state of one rate limiter: how the scripts read it, bring it up to date and write it.
-- src/window.rs has the same steps in Rust.
--
-- A permit taken at T is available again at T + interval, inclusive. The invariant: value + the
-- permits of all grants in the sorted set = rate. It includes expired grants, until a call removes
-- them and adds their permits to the value. A call removes the oldest, as many as its request needs
-- and a few more, so its work does not grow with the number of grants. If the rate was lowered
-- below what is in use, the value is negative.
--
-- The invariant breaks if a peer's release, an eviction or an operator changes one key and not the
-- other. With few grants `reconcile` restores it, with many an audit (audit_read.lua,
-- audit_reconcile.lua).
--
-- Uses    `LARGEST`, `ALWAYS_SUMMED`, `MOST_SUMMED`, `ALWAYS_REMOVED`, `MOST_READ`,
--         `always_removed`, `to_remove`
-- Sets    `load_window`, which returns the functions below as a table
-- Changes `to_remove`, less each expired grant that is read to be removed, or that a peek reads
local function load_window()
  -- Returns `given` as ms; the server's clock in ms since the epoch if the caller passed no time.
  local function time_of(given)
    if given ~= '' then
      return tonumber(given)
    end
    local time = redis.call('time')
    return time[1] * 1000 + math.floor(time[2] / 1000)
  end

  -- Returns `number` in decimal digits. Lua's own conversion writes large ones with an exponent;
  -- Redis's conversion of arguments is slower.
  local function digits(number)
    return string.format('%d', number)
  end

  -- Returns the member of a grant.
  local function pack(random, permits)
    return struct.pack('<Bc0I', #random, random, permits)
  end

  -- Returns the permits of `grant`; 0 if it is malformed.
  local function permits_of(grant)
    --! include shared/held.lua
    return held
  end

  -- Returns the integer in `text`; nil if it is not in the form that Redis writes. tonumber alone
  -- accepts forms that INCRBY refuses: `5.0`, ` 5`, `0x5`, `05`, `+5`.
  local function integer(text)
    local number = tonumber(text)
    if number and number >= -LARGEST and number <= LARGEST and digits(number) == text then
      return number
    end
  end

  -- Returns the permits of all `members`. Malformed ones hold none.
  local function sum(members)
    local total = 0
    for _, member in ipairs(members) do
      total = total + permits_of(member)
    end
    return total
  end

  -- Returns whether `member` sorts before every member that begins with `prefix`, byte by byte.
  -- Lua's own comparison follows the server's locale.
  local function is_before(member, prefix)
    for i = 1, #prefix do
      local a, b = string.byte(member, i) or -1, string.byte(prefix, i)
      if a ~= b then
        return a < b
      end
    end
    return false
  end

  -- Returns the grant with this score that begins with `prefix`, its length byte and call id; nil
  -- if there is none. Redis sorts members of one score by their bytes: a binary search reads few.
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

  -- Returns the grant that a call made with a score in `from` to `to`, and its score. `member` is
  -- the grant that the call makes if it is granted in full. Reads one page at most: if there are
  -- more and the grant is not in it, returns nil, nil and the score from which to continue.
  local function find_call(key, member, from, to)
    local score = redis.call('zscore', key, member)
    if score then
      return member, score
    end
    local prefix = string.sub(member, 1, 17) -- the length byte and the call id
    local page = redis.call('zrangebyscore', key, digits(from), digits(to), 'withscores',
      'limit', '0', MOST_READ)
    for i = 1, #page, 2 do
      if string.sub(page[i], 1, #prefix) == prefix and permits_of(page[i]) > 0 then
        return page[i], page[i + 1]
      end
    end
    if #page < 2 * MOST_READ then
      return
    end
    local last_score = math.floor(tonumber(page[#page]))
    if last_score > from then
      return nil, nil, last_score
    end
    -- All grants of the page are of one millisecond.
    local grant = find_at(key, digits(from), prefix)
    if grant then
      return grant, digits(from)
    end
    if from < to then
      return nil, nil, from + 1
    end
  end

  -- Returns the score of the oldest live grant with permits; nil if there is none. `oldest` is the
  -- oldest live member and its score. Members without permits, such as fences of leases, are passed
  -- over; if all that this reads are such, returns the score of the last of them.
  local function oldest_score_of(key, horizon, oldest)
    local place = 1
    if oldest[1] and permits_of(oldest[1]) == 0 then
      oldest = redis.call('zrangebyscore', key, '(' .. digits(horizon), '+inf', 'withscores',
        'limit', 0, MOST_SUMMED)
      while oldest[place] and permits_of(oldest[place]) == 0 and place < 2 * MOST_SUMMED - 1 do
        place = place + 2
      end
    end
    return oldest[place + 1] and math.floor(tonumber(oldest[place + 1]))
  end

  -- Returns the ms until the oldest live grant expires, at most the interval; the interval if there
  -- is none.
  local function until_first(key, now, interval)
    local oldest = redis.call('zrangebyscore', key, '(' .. digits(now - interval), '+inf',
      'withscores', 'limit', 0, 1)
    local oldest_score = oldest_score_of(key, now - interval, oldest)
    return oldest_score and math.min(interval - now + oldest_score, interval) or interval
  end

  -- Returns the keep alive of a limiter that gets the settings `required` of `open`. Before it had
  -- `interval` and the keep alive `stored`: 0 for none, nil for a new limiter.
  local function keep_alive_of(stored, interval, required)
    if not stored or required[5] == 1 and required[4] == 0 then
      return required[4]
    elseif stored == 0 and required[5] == 0 then
      return 0
    end
    return math.max(stored == 0 and interval or stored, required[2], required[4])
  end

  -- Returns the limiter: its settings, the two keys that its type selects, and the stored value;
  -- nil and an error if they are unusable. Only reads. A caller that has read the hash's fields and
  -- the text of the value passes them.
  --
  -- `required` is the rate, interval, type and keep alive that a missing limiter gets, and what
  -- becomes of an existing one. With 2 it stays as it is. With 0 or 1 the returned limiter has
  -- these settings, but a longer keep alive stays, and none is shorter than the interval. With 1 a
  -- limiter without a keep alive gets one, no shorter than the interval before, or loses its own.
  -- As shared/life.lua says, what the keys hold may count longer for another client: so a limiter
  -- that is reset keeps a longer keep alive too. With `required` the limiter has the fields
  --   changes_settings  set if the hash has other settings
  --   is_reset          set if there was no limiter, or one of the other type: nothing is in use
  --   needed_ttl        the interval, which the keys must live at least, in ms
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
      local is_per_client = required[3] == 1
      local stored_keep_alive = exists and integer(fields[4] or '0')
      return {
        name = name,
        rate = required[1],
        interval = required[2],
        rate_type = required[3],
        keep_alive = keep_alive_of(stored_keep_alive, integer(fields[2] or '0') or 0, required),
        value_key = is_per_client and client_value or value,
        permits_key = is_per_client and client_permits or permits,
        changes_settings = true,
        is_reset = true,
        needed_ttl = required[2],
      }
    end
    if not exists then
      return nil, redis.error_reply('UNINITIALIZED the rate limiter has no rate')
    end
    local rate, interval = integer(fields[1]), integer(fields[2])
    local keep_alive = integer(fields[4] or '0')
    if not (rate and interval and keep_alive and rate >= 0 and interval >= 0)
        or (fields[3] ~= '0' and fields[3] ~= '1') then
      return nil, redis.error_reply(
        'BADSTATE a field of the rate limiter is not an integer in its range')
    end
    local is_per_client = fields[3] == '1'
    local value_key = is_per_client and client_value or value
    if not was_read then
      text = redis.call('get', value_key)
    end
    local stored_value = text and integer(text) or nil
    if text and not stored_value then
      return nil, redis.error_reply('BADSTATE the value is not an integer')
    end
    local limiter = {
      name = name,
      rate = rate,
      interval = interval,
      rate_type = tonumber(fields[3]),
      keep_alive = keep_alive,
      value_key = value_key,
      permits_key = is_per_client and client_permits or permits,
      value = stored_value, -- under the required rate; nil if the key is missing
      stored_value = stored_value, -- what the key holds; nil if it must be written in any case
    }
    if required then
      limiter.needed_ttl = required[2]
      limiter.keep_alive = keep_alive_of(keep_alive, interval, required)
      if rate ~= required[1] or interval ~= required[2] or keep_alive ~= limiter.keep_alive then
        limiter.changes_settings = true
        limiter.rate, limiter.interval = required[1], required[2]
        limiter.value = stored_value
          and math.min(stored_value + (limiter.rate - rate), limiter.rate)
        limiter.stored_value = nil
      end
    end
    return limiter
  end

  -- Reads the next expired grants, at most `most`, and adds their permits to `expired_permits`.
  local function read_expired(limiter, most)
    local key, horizon = limiter.permits_key, digits(limiter.horizon)
    local count = 0
    if most > 0 then
      local grants = redis.call('zrangebyscore', key, '-inf', horizon,
        'limit', digits(limiter.expired), digits(most))
      count = #grants
      to_remove = to_remove - count
      limiter.expired = limiter.expired + count
      limiter.expired_permits = limiter.expired_permits + sum(grants)
    end
    limiter.unread = count < most and 0
      or redis.call('zcount', key, '-inf', horizon) - limiter.expired
  end

  -- Sums the permits of all expired grants, for a call that removes none. Reads as many as this
  -- call may remove, from the newest to the oldest; the next call continues from there. If others
  -- remove the oldest meanwhile, their permits are part of the value. Returns whether all were
  -- read, and what the next call passes: permits and number of those read, and the oldest of them.
  local function sum_expired(limiter, now, permits, number, oldest)
    local key, horizon = limiter.permits_key, digits(now - limiter.interval)
    local stored = redis.call('zcard', key)
    local expired = redis.call('zcount', key, '-inf', horizon)
    if expired > MOST_READ and stored - expired <= MOST_SUMMED then
      -- By the invariant the expired grants hold the rate less the value and the live grants.
      local live = redis.call('zrange', key, digits(expired), digits(stored))
      return true, limiter.rate - (limiter.value or 0) - sum(live)
    end
    local unread = oldest and redis.call('zrank', key, oldest)
    if not unread or expired - unread ~= number then
      unread, permits, number, oldest = expired, 0, 0, nil -- the grants that were read have changed
    end
    local first = math.max(unread - to_remove, 0)
    if first < unread then
      local page = redis.call('zrange', key, digits(first), digits(unread - 1))
      permits, number, oldest = permits + sum(page), number + #page, page[1]
      to_remove = to_remove - #page
    end
    return first == 0, permits, number, oldest
  end

  -- Returns how many of the permits `in_use`, which grants hold, a peer's release has returned: it
  -- raises the value and leaves the grants. A peer that lowers the rate below what is in use writes
  -- the value 0, so only what is above 0 can come from a release.
  local function excess_of(value, in_use, rate)
    local available = math.min(value, rate)
    local excess = math.max(in_use - (rate - available), 0) -- exact up to 2^53
    return available >= 0 and math.min(excess, available) or excess
  end

  -- Computes the available permits at `now`. Reads expired grants until `wanted` permits are
  -- available, or until this call may remove no more. A caller that has read all expired grants
  -- passes their permits, `all_expired_permits`. Writes nothing. Returns an error if the score of a
  -- grant is unusable, else nil, and sets in any case
  --   horizon          grants with at most this score have expired
  --   expired          how many grants, the oldest, are to be removed
  --   expired_permits  their permits
  --   unread           how many more have expired
  --   all_expired      whether every grant has expired
  --   available        the available permits; negative if more than the rate is in use
  --   oldest_score     score of the oldest live grant with permits, nil if there is none
  --   in_use           permits of the live grants without `excess`, nil if they were not summed
  --   excess           permits that these grants hold although a peer's release returned them
  --   summed           how many grants were summed, -1 if they are too many
  -- Live grants are summed if the value is missing or `must_sum` is set. If grants have expired,
  -- also if the live ones are few, so that the sum costs little, and if their number alone exceeds
  -- the permits in use; but not if their number equals these, because then each holds one permit.
  local function reconcile(limiter, now, must_sum, wanted, all_expired_permits)
    local rate, value, key = limiter.rate, limiter.value, limiter.permits_key
    limiter.horizon = now - limiter.interval
    limiter.expired, limiter.unread, limiter.expired_permits = 0, 0, 0
    limiter.excess = 0
    limiter.summed = 0
    limiter.available = rate
    if limiter.is_reset then
      return
    end

    local oldest = redis.call('zrange', key, '0', '0', 'withscores')
    if not oldest[1] then
      return -- nothing is in use
    end
    local number = redis.call('zcard', key)
    if tonumber(oldest[2]) <= limiter.horizon then
      oldest = redis.call('zrangebyscore', key, '(' .. digits(limiter.horizon), '+inf',
        'withscores', 'limit', 0, 1)
      if not oldest[1] then
        limiter.expired, limiter.all_expired = number, true
        return
      end
      if all_expired_permits then
        limiter.expired = redis.call('zcount', key, '-inf', digits(limiter.horizon))
        limiter.expired_permits = all_expired_permits
      else
        read_expired(limiter, math.min(always_removed, to_remove))
        if limiter.unread > 0 and (value or 0) + limiter.expired_permits < wanted then
          read_expired(limiter, to_remove)
        end
      end
    end

    limiter.oldest_score = oldest_score_of(key, limiter.horizon, oldest)
    local expired_permits = limiter.expired_permits
    limiter.available = math.min((value or 0) + expired_permits, rate)
    number = number - limiter.expired
    must_sum = not value or must_sum
    if limiter.expired > 0 and not must_sum then
      local in_use = rate - value - expired_permits
      must_sum = number > in_use or (number <= ALWAYS_SUMMED and number ~= in_use)
    end
    if must_sum and number > MOST_SUMMED then
      limiter.summed = -1
    elseif must_sum then
      local last = digits(limiter.expired + number - 1)
      local grants = redis.call('zrange', key, digits(limiter.expired), last)
      local in_use = sum(grants)
      limiter.excess = value and excess_of(value, in_use, rate) or 0
      limiter.in_use = in_use - limiter.excess
      limiter.available = rate - limiter.in_use
      limiter.summed = #grants
    end
    if limiter.oldest_score and limiter.oldest_score >= LARGEST then
      return redis.error_reply('BADSTATE the score of a grant is not a time')
    end
  end

  -- Returns whether more grants have expired than any call removes, and others are live.
  local function has_many_expired(limiter, now)
    if limiter.is_reset then
      return false
    end
    local key, horizon = limiter.permits_key, digits(now - limiter.interval)
    local expired = redis.call('zcount', key, '-inf', horizon)
    return expired > always_removed and expired < redis.call('zcard', key)
  end

  -- Returns the ms until `permits` are available, at most the rate, if nobody else takes any: until
  -- enough of the oldest `most` live grants have expired, or all grants if these hold too few.
  local function until_available(limiter, now, permits, most)
    local missing = { permits - limiter.available + limiter.excess }
    local key, place, interval = limiter.permits_key, limiter.expired, limiter.interval
    --! include shared/until_back.lua
    return until_back[1]
  end

  -- Returns whether the request must be sent again: expired grants that this call may not remove
  -- hold permits that it needs.
  local function is_unfinished(limiter, wanted)
    return limiter.unread > 0 and limiter.available < wanted
  end

  -- Leaves `permits` in `member`, a grant, and gives it this score and, if passed, this `id`.
  -- Returns whether it got that id, or kept its own. If a call was granted twice, its other grant
  -- may hold as many permits, and equal members would be one: then this grant gets another id,
  -- which ends with a number. Adds the new member before it removes the old one, so that the key
  -- and its time to live stay.
  local function shrink(key, score, member, permits, id)
    id = id or string.sub(member, 2, -5)
    local random, number = id, 0
    while redis.call('zadd', key, 'nx', score, pack(random, permits)) == 0 do
      number = number + 1
      random = string.sub(id, 1, 16) .. struct.pack('<I', number) -- short enough for a length byte
    end
    redis.call('zrem', key, member)
    return random == id
  end

  -- Takes `permits` out of the oldest grants, from the index `place` on, and removes the members
  -- without permits that it passes: the fences of leases (shared/fence.lua). Reads one page at
  -- most. Returns how many permits it took, and whether there are more grants.
  local function take_from_oldest(limiter, place, permits)
    local key, wanted = limiter.permits_key, permits
    local removed = 0 -- members
    local shrunk, shrunk_to
    local read, has_more = 0, true
    while permits > 0 and has_more and read < MOST_READ do
      local page_size = math.min(64, MOST_READ - read)
      local from = place + read
      -- Without scores, which cost more than the members.
      local page = redis.call('zrange', key, digits(from), digits(from + page_size - 1))
      for i = 1, #page do
        if permits > 0 then
          local held = permits_of(page[i])
          if held > permits then
            shrunk, shrunk_to = page[i], held - permits
          else
            removed = removed + 1
          end
          permits = math.max(permits - held, 0)
        end
      end
      read = read + #page
      has_more = #page == page_size
    end
    if removed > 0 then
      redis.call('zremrangebyrank', key, digits(place), digits(place + removed - 1))
    end
    if shrunk then
      shrink(key, redis.call('zscore', key, shrunk), shrunk, shrunk_to)
    end
    return wanted - permits, has_more
  end

  -- Records for a running audit that `permits` were taken out of a grant that was not the oldest,
  -- and whether it `is_removed`. Ends the audit if it would have to hold too many changes.
  local function note_change(audit, member, score, permits, is_removed)
    local change = table.concat({ score, digits(permits), is_removed and '1' or '0', member }, ' ')
    local length = redis.pcall('rpushx', audit, change)
    if type(length) == 'number' and length > MOST_READ then
      redis.call('ltrim', audit, '0', '0')
      redis.call('lset', audit, '0', '')
    end
  end

  -- Ends a running audit.
  local function end_audit(audit)
    redis.pcall('lset', audit, '0', '')
  end

  -- Adds permits that were taken out of live grants to the available ones. If a peer's release had
  -- returned some of them, the remaining grants hold less than the excess.
  local function credit(limiter, permits)
    if limiter.in_use then
      limiter.in_use = math.max(limiter.in_use - permits, 0)
      limiter.available = limiter.rate - limiter.in_use
    else
      limiter.available = math.min(limiter.available + permits, limiter.rate)
    end
  end

  -- Writes what comes before a new grant: the settings that `open` was called with, and the grants
  -- without the excess. If the limiter is reset, deletes the keys in the further arguments, with
  -- what an earlier limiter left in them. If all grants have expired and are many, deletes their
  -- key: the server frees a deleted key in the background.
  local function prepare(limiter, ...)
    if limiter.changes_settings then
      redis.call('hset', limiter.name,
        'rate', digits(limiter.rate), 'interval', digits(limiter.interval),
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

  -- Writes what `reconcile` computed, after `prepare` and a new grant of `taken` permits, and
  -- renews the times to live.
  local function write(limiter, taken)
    local call, renews, needed_ttl = redis.call, true, limiter.needed_ttl or 0
    local name, value_key, permits_key = limiter.name, limiter.value_key, limiter.permits_key
    local available, stored_value = limiter.available, limiter.stored_value
    local taken_text = digits(taken)
    local expired = limiter.is_deleted and 0 or limiter.expired
    local all_expired = limiter.all_expired
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
