-- Twin of core/gcra.go. State: used and mark, packed, and then "period quota
-- burst". The extra is the burst.
--
-- used units were taken since mark, when the queue was empty. period/quota is in lowest
-- terms. The queue is empty again at mark + used * period / quota, which is the TAT,
-- the theoretical arrival time, of the literature. It is never computed as one number,
-- so no fraction is rounded.
--
-- A fourth number in the text, if not 0, is the number of units beyond the burst that
-- were booked when the state was written. If more are booked later, the clock has
-- stepped back.
--
-- Division is (a - a % b) / b, which is exact where a / b is rounded.

-- gcra_quick decides most calls: takes that book nothing, where units come back one by
-- one every period, from a key that is fresh or was last used under this limit. It
-- returns nil if gcra has to decide: the take is refused, units are booked, or the
-- clock has stepped back.
local function gcra_quick(text, cost, period, burst, limit)
  local used, mark = 0, now
  if text then
    if sub(text, HEAD + 1) ~= limit then
      return nil
    end
    used, mark = struct.unpack(PAIR, text)
    local since = now - mark
    if since < 0 then
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

-- MAX_BOOKING is how far ahead units can be booked.
local MAX_BOOKING = 3600000000

-- span returns the time, rounded up, until n units have come back.
local function span(period, quota, n)
  local rest = period % quota
  local part = n * rest
  return n * ((period - rest) / quota) + (part + -part % quota) / quota
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

local function gcra(text, verb, cost, pending, period, quota, burst, limit, x, y)
  -- settle
  local used, mark, changed = 0, now, false
  local n = 0 -- units that have come back since mark
  if text then
    local used0, mark0, limit0 = units(text)
    local period0, quota0, burst0, over = period, quota, burst, 0
    if limit0 ~= limit then
      period0, quota0, burst0, over = match(limit0 or '', '^([1-9]%d*) ([1-9]%d*) ([1-9]%d*) ?(%d*)$')
      if not period0 then
        return nil
      end
      period0, quota0, burst0 = min(period0, NEVER), min(quota0, NEVER), min(burst0, NEVER)
      over = tonumber(over) or 0
    end
    -- At most a burst, the units that can be booked and three times the quota are in
    -- use.
    used0 = min(used0, burst0 + quota0 * (MAX_BOOKING / period0 + 3))
    if mark0 > now then
      used0, mark0, changed = min(used0, burst0), now, true
    end
    local since = now - mark0
    if since < span(period0, quota0, used0) then
      local rest = since % period0
      used, mark = used0 - (since - rest) / period0 * quota0, now - rest
      n = back(period0, quota0, rest)
      if used - n > burst0 + over then
        used, changed = n + burst0, true
      end
      if period0 ~= period or quota0 ~= quota or burst0 ~= burst then
        -- The time since the last unit came back counts, but gives back no unit at
        -- once.
        used, changed = min(used - n, burst), true
        mark = max(mark + span(period0, quota0, n), now - span(period, quota, 1) + 1)
        n = back(period, quota, now - mark)
      end
    end
  end

  local wait = 0
  if verb == 'refund' then
    -- refund
    changed = true
    if x == 0 then
      used = max(0, used - cost)
    else
      local upto = min(used, back(period, quota, max(0, x + y - mark)))
      local fixed = used - n > burst and upto < used
      local spent = mark + span(period, quota, upto) <= now
      if not fixed and not spent then
        if mark + span(period, quota, max(0, upto - cost)) >= now then
          used = used - min(cost, upto)
        else
          used, mark, n = used - upto, now, 0
        end
      end
    end
  elseif cost ~= 0 then
    -- delay
    local missing = used + cost + pending - burst
    if missing > used then
      wait = NEVER
    elseif missing >= 1 then
      wait = max(0, mark + span(period, quota, missing) - now)
    end
    -- take
    if verb == 'take' and wait <= x then
      used, changed = used + cost, true
    end
  end

  -- gauge
  local reset = max(0, mark + span(period, quota, used) - now)
  if reset == 0 then
    return text and '', burst, 0, wait
  end
  local over, next = max(0, used - n - burst), false
  if changed then
    next = struct.pack(PAIR_TEXT, used, mark, over == 0 and limit or format('%s %d', limit, over))
  end
  return next, max(0, burst - used + n), reset, wait
end
