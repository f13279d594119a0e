-- Twin of core/slidingwindow.go. State: "width/segments newest c c c", the microseconds
-- of a segment, how many of them make a period, the number of the newest segment that holds
-- units, and the units of it and of those before it. "/segments" is left out if they are
-- DEFAULT_SEGMENTS. Units that were taken under another width or number of segments follow,
-- each segment after a ";" and in the same form. The extra is the number of segments.

-- @slow

local DEFAULT_SEGMENTS = 10

-- settle lays out the units of a state from the current segment back to the oldest that
-- counts. The others are the segments of another width or number that count: their numbers
-- (at), units (n), widths, numbers of segments (count), and the instants from which they no
-- longer count (stop).
local function settle(text, width, segments)
  local current, units, others, changed = floor(now / width), {}, {}, false
  for i = 1, segments + 1 do
    units[i] = 0
  end

  if not text then
    return units, current, others, changed
  end

  local from = 1
  repeat
    local width0, count, newest, counts, after = match(text, '^([1-9]%d*)/?(%d*) (%d+)([ %d]+);?()', from)
    if not width0 then
      return nil
    end
    width0, count = width0 * 1, count == '' and DEFAULT_SEGMENTS or count * 1
    if max(width0 * count, MAX_PERIOD) ~= MAX_PERIOD then
      return nil
    end

    local at, own, present = min(newest, NEVER), width0 == width and count == segments, floor(now / width0)
    changed, from = changed or at > present, after
    for n in string.gmatch(counts, '%d+') do
      local age = max(0, present - at)
      if own and age <= segments then
        units[age + 1] = units[age + 1] + min(n, NEVER)
      elseif not own and age <= count and n * 1 ~= 0 then
        local last = others[#others]
        if last and last.at == present - age and last.width == width0 and last.count == count then
          last.n = last.n + min(n, NEVER) -- both lay after now
        else
          others[#others + 1] = { at = present - age, n = min(n, NEVER), width = width0, count = count,
            stop = (present - age + 1 + count) * width0 }
        end
      end
      at = at - 1
    end
  until from == #text + 1
  return units, current, others, changed
end

-- group_text returns the state of segments that follow each other, from the newest back.
local function group_text(width, segments, newest, counts)
  if segments == DEFAULT_SEGMENTS then
    return format('%d %d %s', width, newest, counts)
  end
  return format('%d/%d %d %s', width, segments, newest, counts)
end

-- weigh returns the units of the segments in the list that count at the instant. A segment
-- that has begun to leave the period counts in part.
local function weigh(list, instant)
  local sum = 0
  for _, g in ipairs(list) do
    sum = sum + ceil(min(g.n, floor(NEVER / g.width)) * max(0, min(g.width, g.stop - instant)) / g.width)
  end
  return sum
end

-- sliding_window is a step. x is how far ahead a take or a peek may book, the instant of the take
-- that a refund undoes or 0, and the most units in use after a debit. It needs no y.
local function sliding_window(text, verb, cost, pending, period, quota, segments, _, x)
  -- settle
  local width = period / segments
  local units, current, others, changed = settle(text, width, segments)
  if not units then
    return nil
  end

  -- refund
  if verb == 'refund' then
    local left = cost
    changed = true
    for i, n in ipairs(units) do
      if x == 0 or current - i + 1 == floor(x / width) then
        local back = min(left, n)
        units[i], left = n - back, left - back
      end
    end
  end

  -- The oldest segment counts in part, the part that is within a period.
  local most, partial = floor(NEVER / width), (current + 1) * width - now
  local sum = ceil(min(units[segments + 1], most) * partial / width)
  for i = 1, segments do
    sum = sum + min(units[i], most)
  end
  if #others ~= 0 then
    sum = sum + weigh(others, now)
  end

  local wait, taken = 0, 0
  if verb == 'debit' then
    -- debit
    taken = max(0, min(cost, x - sum))
  elseif verb ~= 'refund' and cost ~= 0 then
    -- delay
    local n = cost + pending
    local over = sum + n - quota
    if n > quota then
      wait = NEVER
    elseif over > 0 and #others ~= 0 then
      -- The first instant at which few enough count, by bisection. None does when the last has stopped.
      local list, early, late = {}, now, now
      for i, units in ipairs(units) do
        list[i] = { n = units, width = width, stop = (current - i + 2) * width + period }
      end
      for _, g in ipairs(others) do
        list[#list + 1] = g
      end
      for _, g in ipairs(list) do
        late = max(late, g.stop)
      end
      while late - early > 1 do
        local middle = early + floor((late - early) / 2)
        if weigh(list, middle) > quota - n then
          early = middle
        else
          late = middle
        end
      end
      wait = late - now
    elseif over > 0 then
      -- The segments leave one by one, the oldest first.
      local i, weight = segments + 1, ceil(min(units[segments + 1], most) * partial / width)
      while over > weight do
        i, over = i - 1, over - weight
        weight = min(units[i], most)
      end
      local overlap = floor((weight - over) * width / min(units[i], most))
      wait = (current - i + 2) * width + period - overlap - now
    end
  end

  -- take
  local added = verb == 'take' and wait <= x and cost or taken
  if added ~= 0 then
    sum = sum - min(units[1], most) + min(units[1] + added, most)
    units[1], changed = units[1] + added, true
  end

  -- gauge
  local newest, last = 1, now
  while units[newest] == 0 do
    newest = newest + 1
  end
  if units[newest] then
    last = (current - newest + 2) * width + period
  end
  for _, g in ipairs(others) do
    last = max(last, g.stop)
  end
  if last == now then
    return changed and text and '', quota, 0, wait, taken
  end
  if not changed then
    return false, max(0, quota - sum), last - now, wait, taken
  end

  local groups = {}
  if units[newest] then
    local oldest = segments + 1
    while units[oldest] == 0 do
      oldest = oldest - 1
    end
    for i = newest, oldest do
      units[i] = format('%d', units[i])
    end
    groups[1] = group_text(width, segments, current - newest + 1, table.concat(units, ' ', newest, oldest))
  end
  for _, g in ipairs(others) do
    groups[#groups + 1] = group_text(g.width, g.count, g.at, format('%d', g.n))
  end
  return table.concat(groups, ';'), max(0, quota - sum), last - now, wait, taken
end
