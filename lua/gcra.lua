-- Twin of core/gcra.go. State: used and mark, packed, and then "period quota
-- burst": used units were taken since mark, the queue was empty at mark, and
-- period/quota is in lowest terms, so that it is empty again at mark + used *
-- period / quota. The extra is the burst. A fourth number in the text, where it is
-- not 0, is how many units beyond the burst were booked when the state was
-- written: if more are in use later, the clock has stepped back.

-- Division is (a - a % b) / b, which is exact where a / b is rounded.

-- span is how long it takes until n units have come back.
local function span(period, quota, n)
  local rest = period % quota
  local part = n * rest
  return n * ((period - rest) / quota) + (part + -part % quota) / quota
end

-- back is how many units have come back after t. The division may be off by a
-- bit, so it starts one above, and span, which is exact, decides.
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

-- units reads a state, which is none if its numbers are not such as are written.
local function units(text)
  if sub(text, HEAD, HEAD) == '' then
    return nil
  end
  local used, mark = struct.unpack('>dd', text)
  if floor(used) % 2 ^ 53 ~= used or floor(mark) % 2 ^ 53 ~= mark then
    return nil
  end
  return used, mark, sub(text, HEAD + 1)
end

local function gcra(text, verb, cost, pending, period, quota, burst, limit, x, y)
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
    -- No more can be in use than a burst, an hour's bookings and turns of quota.
    used0 = min(used0, burst0 + quota0 * (3600000000 / period0 + 3))
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
    elseif missing >= 1 then
      wait = max(0, mark + span(period, quota, missing) - now)
    end
    if verb == 'take' and wait <= x then
      used, changed = used + cost, true
    end
  end

  local reset = max(0, mark + span(period, quota, used) - now)
  if reset == 0 then
    return text and '', burst, 0, wait
  end
  local over, next = max(0, used - n - burst), false
  if changed then
    next = struct.pack(PAIR, used, mark, over == 0 and limit or format('%s %d', limit, over))
  end
  return next, max(0, burst - used + n), reset, wait
end
