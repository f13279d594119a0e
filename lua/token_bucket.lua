-- Twin of core/tokenbucket.go. State: "used mark period quota", the tokens missing
-- since the last refill at mark, and the refill under which they are missing. The extra
-- is the burst.

-- @slow

local function token_bucket(text, verb, cost, pending, period, quota, burst, _, x, y)
  -- settle
  local used, mark, changed = 0, now, false
  if text then
    local used0, mark0, a0, b0 = match(text, '^(%d+) (%d+) ([1-9]%d*) ([1-9]%d*)$')
    if not used0 then
      return nil
    end
    local period0, quota0 = min(a0, NEVER), min(b0, NEVER)
    used0, mark0 = min(used0, NEVER), min(mark0, NEVER)
    local last = min(mark0, now)
    changed = last ~= mark0
    local refills = floor((now - last) / period0)
    if refills < ceil(used0 / quota0) then
      used0 = used0 - refills * quota0
      used, mark = min(used0, burst), last + refills * period0
      changed = changed or used ~= used0
      if period0 ~= period or quota0 ~= quota then
        -- The time since the last refill counts, but brings no refill at once.
        mark, changed = max(mark, now - period + 1), true
      end
    end
  end

  local wait = 0
  if verb == 'refund' then
    -- refund
    changed = true
    local n = min(cost, used)
    if x ~= 0 then
      local enough = ceil(cost / quota) + 1
      local since = min(enough, max(0, -floor((x - mark) / period)))
      local ahead = min(enough, max(0, floor((x + y - mark) / period)))
      n = min(n, max(cost - since * quota, (ahead - 1) * quota + 1, 0))
    end
    used = used - n
  elseif cost ~= 0 then
    -- delay
    local n = cost + pending
    if n > burst then
      wait = NEVER
    elseif used + n > burst then
      wait = mark + ceil((used + n - burst) / quota) * period - now
    end
    -- take
    if verb == 'take' and wait <= x then
      used, changed = used + cost, true
    end
  end

  -- gauge
  if used == 0 then
    return text and '', burst, 0, wait
  end
  local reset = mark + ceil(used / quota) * period - now
  return changed and format('%d %d %d %d', used, mark, period, quota), burst - used, reset, wait
end
