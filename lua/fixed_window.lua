-- Twin of core/fixedwindow.go. State: "used ends". The extra is 1 for windows
-- aligned to the epoch.

-- @slow

local function fixed_window(text, verb, cost, pending, period, quota, aligned, _, x, y)
  -- settle
  local latest_end = now + period
  if aligned == 1 then
    latest_end = now - now % period + period
  end
  local used, ends, changed = 0, latest_end, false
  if text then
    local used0, ends0 = match(text, '^(%d+) (%d+)$')
    if not used0 then
      return nil
    end
    ends0 = min(ends0, NEVER)
    if ends0 > now then
      used = min(used0, NEVER)
      ends = aligned == 1 and latest_end or min(ends0, latest_end)
      changed = ends ~= ends0
    end
  end

  local wait = 0
  if verb == 'refund' then
    -- refund
    changed = true
    if x == 0 or x + y == ends then
      used = max(0, used - cost)
    end
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
    return text and '', quota, 0, wait
  end
  return changed and format('%d %d', used, ends), max(0, quota - used), ends - now, wait
end
