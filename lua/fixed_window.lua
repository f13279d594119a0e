-- Twin of core/fixedwindow.go. State: "used ends period aligned": the end of the window,
-- and the period and the extra of the limit under which it began. A state without the
-- last two, of an older version, is read as one of the limit of the operation. The extra
-- is 1 for windows aligned to the epoch.

-- @slow

-- window_end returns the end of a window that starts now or, if aligned, contains now.
local function window_end(period, aligned)
  return aligned == 1 and now - now % period + period or now + period
end

-- fixed_window is a step. x is how far ahead a take or a peek may book, the instant of the take
-- that a refund undoes or 0, and the most units in use after a debit. y is the reset that the
-- take was answered, for a refund: x + y is the end of its window.
local function fixed_window(text, verb, cost, pending, period, quota, aligned, _, x, y)
  -- settle
  local used, ends, changed = 0, window_end(period, aligned), false
  local period0, aligned0 = period, aligned
  if text then
    local used0, ends0, a, b = match(text, '^(%d+) (%d+) ?(%d*) ?([01]?)$')
    if not used0 then
      return nil
    end
    ends0 = min(ends0, NEVER)
    if ends0 > now then
      if b ~= '' then
        period0, aligned0 = max(1, min(a, NEVER)), tonumber(b)
      end
      local latest_end = window_end(period0, aligned0)
      used, ends = min(used0, NEVER), min(ends0, latest_end)
      changed = ends ~= ends0
    end
  end

  local wait, taken = 0, 0
  if verb == 'refund' then
    -- refund
    changed = true
    if x == 0 or x + y == ends then
      used = max(0, used - cost)
    end
  elseif verb == 'debit' then
    -- debit
    taken = max(0, min(cost, x - used))
    used, changed = used + taken, changed or taken ~= 0
  elseif cost ~= 0 then
    -- delay
    local n = cost + pending
    if n > quota then
      wait = NEVER
    elseif used + n > quota then
      wait = ends - now
    end
    -- take
    if verb == 'take' and wait <= x then
      used, changed = used + cost, true
    end
  end

  -- gauge
  if used == 0 then
    return changed and text and '', quota, 0, wait, taken
  end
  local next = changed and format('%d %d %d %d', used, ends, period0, aligned0)
  return next, max(0, quota - used), ends - now, wait, taken
end
