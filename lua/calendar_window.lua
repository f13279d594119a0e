-- Twin of core/calendarwindow.go. State: "used begin end": the beginning and the end of the
-- window.

-- @slow

-- window_at returns the beginning and the end of the window that holds now, or nil if none
-- of the windows does, whose boundaries are in a text.
local function window_at(boundaries)
  local begin = nil
  for digits in string.gmatch(boundaries, '%d+') do
    local boundary = digits * 1
    if boundary > now then
      return begin, boundary
    end
    begin = boundary
  end
  return nil
end

-- calendar_window is a step. x is how far ahead a take or a peek may book, the instant of the
-- take that a refund undoes or 0, and the most units in use after a debit. y is the reset that
-- the take was answered, for a refund: x + y is the end of its window. For any other verb y is
-- the boundaries of the windows.
local function calendar_window(text, verb, cost, pending, _, quota, _, _, x, y)
  -- settle
  local begin, ends = window_at(verb == 'refund' and '' or y)
  local used, from, upto, changed = 0, begin, ends, false
  if text then
    local used0, from0, upto0 = match(text, '^(%d+) (%d+) (%d+)$')
    if not used0 then
      return nil
    end
    upto0 = min(upto0, NEVER)
    if upto0 > now then
      used, from, upto = min(used0, NEVER), min(from0, NEVER), upto0
      if begin and now < from then
        from, upto, changed = begin, min(ends, upto), true
      end
    end
  end

  local wait, taken = 0, 0
  if verb == 'refund' then
    -- refund
    changed = true
    if x == 0 or x + y == upto then
      used = max(0, used - cost)
    end
  elseif cost ~= 0 and not begin then
    -- No window holds the instant, which the program sees in the reply.
    wait = NEVER
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
      wait = upto - now
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
  local next = changed and format('%d %d %d', used, from, upto)
  return next, max(0, quota - used), upto - now, wait, taken
end
