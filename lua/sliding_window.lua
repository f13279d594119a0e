-- Twin of core/slidingwindow.go. State: "width/segments newest c c c", the microseconds
-- of a segment, how many of them make a period, the number of the newest segment that holds
-- units, and the units of it and of those before it. "/segments" is left out if they are
-- DEFAULT_SEGMENTS. Units that were taken under another width or number of segments follow,
-- each segment after a ";" and in the same form. The extra is the number of segments.

-- @slow

local DEFAULT_SEGMENTS = 10

-- settle lays out the units of a state from the current segment back to the oldest that
-- counts, and lists the segments of another width or number that count: their numbers
-- (at), units (n), widths, numbers of segments (count), and the instants from which they no
-- longer count (stop).
local function settle(text, width, segments)
  local current, units, others = floor(now / width), {}, {}
  for i = 1, segments + 1 do
    units[i] = 0
  end
  if not text then
    return units, current, others, false
  end
  local changed, read = false, false
  for group in string.gmatch(text, '[^;]+') do
    local width0, count, newest, counts = match(group, '^([1-9]%d*)/?(%d*) (%d+)([ %d]+)$')
    if not width0 then
      return nil
    end
    width0, count, read = width0 * 1, count == '' and DEFAULT_SEGMENTS or count * 1, true
    if max(width0 * count, MAX_PERIOD) ~= MAX_PERIOD then
      return nil
    end
    local at, own = min(newest, NEVER), width0 == width and count == segments
    local present = floor(now / width0)
    for n in string.gmatch(counts, '%d+') do
      changed = changed or at > present
      local age = present - min(at, present)
      n = min(n, NEVER)
      if own and age <= segments then
        units[age + 1] = units[age + 1] + n
      elseif not own and age <= count and n ~= 0 then
        local last = others[#others]
        if last and last.at == present - age and last.width == width0 and last.count == count then
          last.n = last.n + n -- both lay after now
        else
          others[#others + 1] = { at = present - age, n = n, width = width0, count = count,
            stop = (present - age + 1 + count) * width0 }
        end
      end
      at = at - 1
    end
  end
  return read and units or nil, current, others, changed
end

-- group_text returns what a state says of segments before their units.
local function group_text(width, segments, newest)
  if segments == DEFAULT_SEGMENTS then
    return format('%d %d', width, newest)
  end
  return format('%d/%d %d', width, segments, newest)
end

-- window_text returns the state, and the place of the newest segment that holds units,
-- or nil if none does. The others are not looked at for that.
local function window_text(units, width, segments, current, others)
  local text, newest, oldest = {}, nil, nil
  for i, n in ipairs(units) do
    if n ~= 0 then
      newest, oldest = newest or i, i
    end
    text[i] = format('%d', n)
  end
  local groups = {}
  if newest then
    groups[1] = format('%s %s', group_text(width, segments, current - newest + 1), table.concat(text, ' ', newest, oldest))
  end
  for _, g in ipairs(others) do
    groups[#groups + 1] = format('%s %d', group_text(g.width, g.count, g.at), g.n)
  end
  return table.concat(groups, ';'), newest
end

-- weigh returns the units of the segments in the list that count at the instant.
local function weigh(list, instant)
  local sum = 0
  for _, g in ipairs(list) do
    sum = sum + ceil(min(g.n, floor(NEVER / g.width)) * max(0, min(g.width, g.stop - instant)) / g.width)
  end
  return sum
end

-- search returns the first instant at which at most n units of the list count, by bisection.
-- None does at late.
local function search(list, n, late)
  local early = now
  while late - early > 1 do
    local middle = early + floor((late - early) / 2)
    if weigh(list, middle) > n then
      early = middle
    else
      late = middle
    end
  end
  return late
end

local function sliding_window(text, verb, cost, pending, period, quota, segments, _, x)
  -- settle
  local width = period / segments
  local units, current, others, changed = settle(text, width, segments)
  if not units then
    return nil
  end
  local partial = (current + 1) * width - now

  -- weight returns the units counted for the i-th segment. The oldest counts in part.
  local most = floor(NEVER / width)
  local function weight(i)
    local overlap = i == segments + 1 and partial or width
    return ceil(min(units[i], most) * overlap / width)
  end
  local function estimate()
    local sum = weigh(others, now)
    for i = 1, segments + 1 do
      sum = sum + weight(i)
    end
    return sum
  end
  -- last returns the instant from which nothing counts any longer, if the newest segment
  -- that holds units is the i-th, or none.
  local function last(i)
    local late = i and (current - i + 2) * width + period or now
    for _, g in ipairs(others) do
      late = max(late, g.stop)
    end
    return late
  end

  local wait, taken, sum = 0, 0, estimate()
  if verb == 'refund' then
    -- refund
    local left = cost
    changed = true
    for i, n in ipairs(units) do
      if x == 0 or current - i + 1 == floor(x / width) then
        local back = min(left, n)
        units[i], left = n - back, left - back
      end
    end
  elseif verb == 'debit' then
    -- debit
    taken = max(0, min(cost, x - sum))
    units[1], changed = units[1] + taken, changed or taken ~= 0
  elseif cost ~= 0 then
    -- delay
    local n = cost + pending
    local over = sum + n - quota
    if n > quota then
      wait = NEVER
    elseif over > 0 and #others ~= 0 then
      local list, late = {}, last(1)
      for i, n in ipairs(units) do
        list[i] = { n = n, width = width, stop = (current - i + 2) * width + period }
      end
      for _, g in ipairs(others) do
        list[#list + 1] = g
      end
      wait = search(list, quota - n, late) - now
    elseif over > 0 then
      local i = segments + 1
      while over > weight(i) do
        over = over - weight(i)
        i = i - 1
      end
      local overlap = floor((weight(i) - over) * width / min(units[i], most))
      wait = (current - i + 2) * width + period - overlap - now
    end
    -- take
    if verb == 'take' and wait <= x then
      units[1], changed = units[1] + cost, true
    end
  end

  -- gauge
  local next, newest = window_text(units, width, segments, current, others)
  if next == '' then
    return changed and text and '', quota, 0, wait, taken
  end
  return changed and next, max(0, quota - estimate()), last(newest) - now, wait, taken
end
