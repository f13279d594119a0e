-- Twin of core/gcra.go. State: "used mark period quota burst": used units were
-- taken since mark, the queue was empty at mark, and period/quota is in lowest
-- terms, so that it is empty again at mark + used * period / quota. The extra is
-- the burst. A sixth number, where it is not 0, is how many units beyond the burst
-- were booked when the state was written: if more are in use later, the clock has
-- stepped back.

-- Division is (a - a % b) / b, which is exact where a / b is rounded.

-- span is how long it takes until n units have come back.
local function span(period, quota, n)
  local part = n * (period % quota)
  return n * ((period - period % quota) / quota) + (part + -part % quota) / quota
end

-- back is how many units have come back after t. The division may be off by a
-- bit, so it starts one above, and span, which is exact, decides.
local function back(period, quota, t)
  local rest = t % period
  local n = floor(rest * quota / period) + 1
  while span(period, quota, n) > rest do
    n = n - 1
  end
  return (t - rest) / period * quota + n
end

local function gcra(text, verb, cost, pending, a, b, c, x, y)
  local period, quota, burst = tonumber(a), tonumber(b), tonumber(c)
  local used, mark, changed = 0, now, false
  local n = 0 -- units that have come back since mark
  if text then
    local used0, mark0, a0, b0, c0, over = match(text, '^(%d+) (%d+) ([1-9]%d*) ([1-9]%d*) ([1-9]%d*) ?(%d*)$')
    if not used0 then
      return nil
    end
    local same = a0 == a and b0 == b and c0 == c
    local period0, quota0, burst0 = period, quota, burst
    if not same then
      period0, quota0, burst0 = number(a0), number(b0), number(c0)
    end
    -- No more can be in use than a burst, an hour's bookings and turns of quota.
    used0 = min(tonumber(used0), burst0 + quota0 * (3600000000 / period0 + 3))
    mark0 = number(mark0)
    if mark0 > now then
      used0, mark0, changed = min(used0, burst0), now, true
    end
    local since = now - mark0
    if since < span(period0, quota0, used0) then
      local rest = since % period0
      used, mark = used0 - (since - rest) / period0 * quota0, now - rest
      n = back(period0, quota0, rest)
      if used - n > burst0 + (tonumber(over) or 0) then
        used, changed = n + burst0, true
      end
      if not same then
        -- The time since the last unit came back counts, but brings none at once.
        used, changed = min(used - n, burst), true
        mark = max(mark + span(period0, quota0, n), now - span(period, quota, 1) + 1)
        n = back(period, quota, now - mark)
      end
    end
  end

  local wait = 0
  if verb == 'refund' then
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
    local missing = used + cost + pending - burst
    if missing > used then
      wait = NEVER
    else
      wait = max(0, mark + span(period, quota, max(0, missing)) - now)
    end
    if verb == 'take' and wait <= x then
      used, changed = used + cost, true
    end
  end

  local reset = max(0, mark + span(period, quota, used) - now)
  if reset == 0 then
    return text and '', burst, 0, wait
  end
  local over = max(0, used - n - burst)
  local booked = over == 0 and '' or format(' %d', over)
  local next = changed and format('%d %d %s %s %s%s', used, mark, a, b, c, booked)
  return next, max(0, burst - used + n), reset, wait
end
