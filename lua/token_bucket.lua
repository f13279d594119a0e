-- Twin of core/tokenbucket.go. State: "used mark period quota burst debt", the tokens
-- missing since the last refill at mark, the limit under which they were taken, and how
-- many more than the burst are missing, if any are. The extra is the burst. A state keeps
-- its limit until the next take, as that of gcra does. In the state of an older version
-- the burst is missing, and read as that of the operation.

-- @slow

-- token_bucket is a step. x is how far ahead a take or a peek may book, the instant of the take
-- that a refund undoes or 0, and the most units in use after a debit. y is the reset that the
-- take was answered, for a refund.
local function token_bucket(text, verb, cost, pending, period, quota, burst, _, x, y)
  -- settle
  local used, mark, changed = 0, now, false
  -- The refills of the state: the first after mark, and the rest.
  local period0, quota0, period1, quota1 = period, quota, period, quota
  local burst0 = burst
  if text then
    local used0, mark0, a, b, c, d = match(text, '^(%d+) (%d+) ([1-9]%d*) ([1-9]%d*) ?(%d*) ?(%d*)$')
    if not used0 then
      return nil
    end
    a, b, c = min(a, NEVER), min(b, NEVER), min(tonumber(c) or burst, NEVER)
    if min(ceil(c / b) * a, MAX_PERIOD + 1) == MAX_PERIOD + 1 then
      a, b, c, d = period, quota, burst, ''
    end
    mark0 = min(mark0, NEVER)
    mark, period0, quota0, burst0 = min(mark0, now), a, b, c
    used = min(used0, c)
    if d ~= '' then
      used = used + min(d, floor(MAX_PERIOD / a) * b)
    end
    changed = mark ~= mark0
    if max(period / quota, a / b) == period / quota then
      period1, quota1 = a, b
    end
  end

  -- due returns the span from mark until n tokens are back, at most 0 if n is.
  local function due(n)
    return min(ceil(n / quota0) * period0, period0 + ceil(max(0, n - quota0) / quota1) * period1)
  end
  -- returned returns the number of tokens that are back, and the span from mark until
  -- the last of them came.
  local function returned()
    local since = now - mark
    local own = min(floor(since / period0), ceil(used / quota0))
    local first = min(1, own)
    local more = min(floor(max(0, since - period0) / period1), ceil(max(0, used - quota0) / quota1))
    return min(used, max(own * quota0, first * quota0 + more * quota1)),
      max(own * period0, first * period0 + more * period1)
  end
  local back, last = returned()

  local wait, taken = 0, 0
  if verb == 'refund' then
    -- refund
    changed = true
    local refills = floor((now - mark) / period0)
    local before = max(0, mark - x)
    if x ~= 0 and before ~= 0 then
      local lost = min(ceil(cost / quota0), ceil(before / period0) + refills)
      cost = max(0, cost - lost * quota0)
    end
    used = used - min(cost, max(0, used - refills * quota0))
    back = returned()
  elseif cost ~= 0 then
    local charged = 0
    if verb == 'debit' then
      -- debit
      taken = max(0, min(cost, x - used + back))
      charged = taken
    else
      -- delay
      local n = cost + pending
      if n > burst then
        wait = NEVER
      elseif used + n - burst >= 1 then
        wait = max(0, mark + due(used + n - burst) - now)
      end
      if verb == 'take' and wait <= x then
        charged = cost
      end
    end
    -- take. The time since the last refill counts, but under another limit brings no
    -- refill at once.
    if charged ~= 0 then
      used, mark = used - back, max(mark + last, now - period + 1)
      if used == 0 then
        mark = now
      end
      used, changed, back = used + charged, true, 0
      period0, quota0, period1, quota1, burst0 = period, quota, period, quota, burst
    end
  end

  -- gauge
  local reset = used ~= 0 and max(0, mark + due(used) - now) or 0
  if reset == 0 then
    return changed and text and '', burst, 0, wait, taken
  end
  local debt, next = used - burst0, false
  if changed and debt >= 1 then
    next = format('%d %d %d %d %d %d', burst0, mark, period0, quota0, burst0, debt)
  elseif changed then
    next = format('%d %d %d %d %d', used, mark, period0, quota0, burst0)
  end
  return next, max(0, burst - used + back), reset, wait, taken
end
