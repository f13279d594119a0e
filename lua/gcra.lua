-- Twin of core/gcra.go. State: used and mark, packed, and then "period quota
-- burst". The extra is the burst.
--
-- used units were taken since mark, when the queue was empty. period/quota is in lowest
-- terms. The queue is empty again at mark + used * period / quota, which is the TAT,
-- the theoretical arrival time, of the literature. It is never computed as one number,
-- so no fraction is rounded.
--
-- A state keeps its limit until the next take. Under another limit its units come back
-- at the faster of both rates, but at its own until the first period after mark has
-- passed; see pace in core/gcra.go.
--
-- A fourth number in the text, if not 0, is the number of units beyond the burst that
-- were in use when the state was written. If they are more later, the clock has stepped
-- back. A fifth is the instant that the latest booking waits for, 0 if the units beyond the
-- burst are a debt. In the state of an older version it is missing, and they are booked.
--
-- Division is (a - a % b) / b, which is exact where a / b is rounded.

-- gcra_quick decides most calls: takes that book nothing, where units come back one by
-- one every period, from a key that is fresh or was last used under this limit. It
-- returns nil if gcra has to decide: the take is refused, units are booked, the clock has
-- stepped back, or the state is of a later format, whose first byte is that of a negative
-- number.
local function gcra_quick(text, cost, period, burst, limit)
  local used, mark = 0, now
  if text then
    if sub(text, HEAD + 1) ~= limit then
      return nil
    end
    used, mark = struct.unpack(PAIR, text)
    local since = now - mark
    if since < 0 or used < 0 then
      return nil
    end
    local n = (since - since % period) / period -- units that have come back
    if n >= used then
      used, mark = 0, now
    else
      used, mark = used - n, mark + n * period
    end
  end
  used = used + cost
  if used > burst then
    return nil
  end
  return struct.pack(PAIR_TEXT, used, mark, limit), burst - used, mark + used * period - now
end

-- @slow

-- MAX_QUEUE is in microseconds: within MAX_PERIOD and the hour for which units can be booked,
-- all units that are in use come back.
local MAX_QUEUE = 34563600000000

-- span returns the time, rounded up, until n units have come back. It is exact for any n
-- that come back within 2^53 microseconds.
local function span(period, quota, n)
  local some, rest = n % quota, period % quota
  local part = some * rest
  return (n - some) / quota * period + some * ((period - rest) / quota) + (part + -part % quota) / quota
end

-- back returns the number of units that have come back after t. The division may be off
-- by a bit, so the search starts one above it, and span, which is exact, decides.
local function back(period, quota, t)
  local rest, n = t % period, 0
  if quota ~= 1 then
    n = floor(rest * quota / period) + 1
    while span(period, quota, n) > rest do
      n = n - 1
    end
  end
  return (t - rest) / period * quota + n
end

-- units reads a state. It returns nil if gcra cannot have written the numbers.
local function units(text)
  if sub(text, HEAD, HEAD) == '' then
    return nil
  end
  local used, mark = struct.unpack(PAIR, text)
  if floor(used) % 2 ^ 53 ~= used or floor(mark) % 2 ^ 53 ~= mark then
    return nil
  end
  return used, mark, sub(text, HEAD + 1)
end

-- convert returns the state under another limit. n units have come back, the last of them
-- until_n after mark. The time since then counts, but brings none at once.
local function convert(used, mark, n, until_n, period, quota)
  if n >= used then
    return 0, now
  end
  return used - n, max(mark + until_n, now - span(period, quota, 1) + 1)
end

-- gcra is a step. x is how far ahead a take or a peek may book, the instant of the take that a
-- refund undoes or 0, and the most units in use after a debit. y is the reset that the take was
-- answered, for a refund.
local function gcra(text, verb, cost, pending, period, quota, burst, limit, x, y)
  -- settle
  local used, mark, changed = 0, now, false
  local n = 0 -- units that have come back since mark
  -- The limit of the state, its text if that is known, whether its rate is that of the
  -- operation's limit, and whether it is slower.
  local period0, quota0, burst0, limit0 = period, quota, burst, limit
  local same, slower = true, false
  local slot = 0 -- the instant of the latest booking
  if text then
    local used0, mark0, written = units(text)
    local over, written_slot = 0, nil
    if written ~= limit then
      local a, b, c, d, e = match(written or '', '^([1-9]%d*) ([1-9]%d*) ([1-9]%d*) ?(%d*) ?(%d*)$')
      if not a then
        return nil
      end
      period0, quota0, burst0, limit0 = min(a, NEVER), min(b, NEVER), min(c, NEVER), nil
      if d ~= '' then
        over, written_slot = d, e ~= '' and e or NEVER
      end
      if min(burst0 / quota0 * period0, MAX_PERIOD + 2) == MAX_PERIOD + 2 then
        period0, quota0, burst0, limit0, over = period, quota, burst, limit, 0
      end
    end
    used0 = min(used0, (floor(MAX_QUEUE / period0) + 4) * quota0) -- no more can be in use
    if mark0 > now then
      used0, mark0, changed, written_slot = min(used0, burst0), now, true, nil
    end
    local since = now - mark0
    if since < span(period0, quota0, used0) then
      used, mark = used0, mark0
      same = period0 == period and quota0 == quota
      n = back(period0, quota0, since)
      if used - n > burst0 + over then
        used, changed = n + burst0, true
      else
        slot = (written_slot or 0) * 1
      end
      slower = not same and max(period / quota, period0 / quota0) == period0 / quota0
    else
      period0, quota0, burst0, limit0 = period, quota, burst, limit
    end
  end

  -- due returns the span from mark until k units have come back.
  local function due(k)
    if slower then
      return span(period0, quota0, min(k, quota0)) + span(period, quota, max(0, k - quota0))
    end
    return span(period0, quota0, k)
  end
  -- returned returns the number of units that have come back.
  local function returned()
    local since = now - mark
    if slower then
      return min(used, back(period0, quota0, min(since, period0)) + back(period, quota, max(0, since - period0)))
    end
    return back(period0, quota0, since)
  end
  if slower then
    n = returned()
  end
  -- advance moves mark towards now, by a whole number of rounds.
  local function advance()
    local rounds = floor((now - mark) / period0)
    used, mark = max(0, used - rounds * quota0), mark + rounds * period0
  end

  local wait, taken = 0, 0
  if verb == 'refund' then
    -- refund
    changed = true
    local lost = max(0, now - x)
    local last = mark + span(period0, quota0, used)
    local behind = slot ~= 0 and x + y < last -- units were booked behind the take
    slot = min(slot, mark + span(period0, quota0, max(0, used - burst0)))
    if x == 0 then
      lost = 0
    elseif behind and slot > now then
      cost = 0
    elseif max(slot, now) == slot and x + y == last or quota0 == 1 and x > mark and not behind then
      lost = 0
    end
    cost = min(cost, (floor(MAX_QUEUE / period0) + 4) * quota0)
    if lost == 0 then
      used = max(0, used - cost)
    else
      -- A fraction of a microsecond counts as lost.
      mark = mark - max(0, span(period0, quota0, cost) - min(1, quota0 - 1) - lost)
      advance()
    end
    n = returned()
  elseif cost ~= 0 then
    local charged = 0
    if verb == 'debit' then
      -- debit
      taken = max(0, min(cost, x - used + n))
      charged, slot = taken, min(slot, mark + span(period0, quota0, max(0, used - burst0)))
    else
      -- delay
      local missing = used + cost + pending - burst
      if missing > used then
        wait = NEVER
      elseif missing >= 1 then
        wait = max(0, mark + due(missing) - now)
        if not same then
          -- The slot of a booking is computed from the state after convert. It is not after
          -- now if the wait is 0.
          local used1, mark1 = convert(used, mark, n, due(n), period, quota)
          local slot = min(mark1 + span(period, quota, used1 + cost + pending - burst) - now, x + 1)
          wait = slot == x + 1 and max(wait, slot) or max(0, slot)
        end
      end
      if verb == 'take' and wait <= x then
        charged, slot = cost, NEVER
      end
    end
    -- take, under the limit of the operation
    if charged ~= 0 then
      if same then
        advance()
      else
        used, mark = convert(used, mark, n, due(n), period, quota)
      end
      n, slower = back(period, quota, now - mark), false
      period0, quota0, burst0, limit0 = period, quota, burst, limit
      used, changed = used + charged, true
    end
  end

  -- gauge
  local reset, next = max(0, mark + due(used) - now), false
  if changed and reset == 0 then
    next = text and ''
  elseif changed then
    local over = used - (slower and back(period0, quota0, now - mark) or n) - burst0
    limit0 = limit0 or format('%d %d %d', period0, quota0, burst0)
    if over >= 1 then
      limit0 = format('%s %d %d', limit0, over, min(slot, mark + span(period0, quota0, used - burst0)))
    end
    next = struct.pack(PAIR_TEXT, used, mark, limit0)
  end
  return next, min(burst, max(0, burst - used + n)), reset, wait, taken
end
