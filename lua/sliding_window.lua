-- Twin of core/slidingwindow.go. State: "width newest c c c", the microseconds
-- of a segment, the number of the newest segment that holds units, and the units of
-- it and of those before it. The extra is the number of segments.

-- @slow

-- settle lays out the units of a state from the current segment back to the oldest that
-- counts. It moves the units of a segment of another width to the segment that contains
-- the end of theirs, or to the current one if theirs has not ended.
local function settle(text, width, segments)
  local current, units = floor(now / width), {}
  for i = 1, segments + 1 do
    units[i] = 0
  end
  if not text then
    return units, current, false
  end
  local width0, newest, counts = match(text, '^([1-9]%d*) (%d+)([ %d]+)$')
  if not width0 then
    return nil
  end
  width0 = min(width0, NEVER)
  local after, changed = min(newest, NEVER) + 1, false
  for n in string.gmatch(counts, '%d+') do
    local age = current - floor(min(after * width0 - 1, now) / width)
    changed = changed or (after - 1) * width0 > now
    if age <= segments then
      units[age + 1] = units[age + 1] + min(n, NEVER)
    end
    after = after - 1
  end
  return units, current, changed
end

-- window_text returns the state, and the place of the newest segment that holds units,
-- or nil if none does.
local function window_text(units, width, current)
  local text, newest, oldest = {}, nil, nil
  for i, n in ipairs(units) do
    if n ~= 0 then
      newest, oldest = newest or i, i
    end
    text[i] = format('%d', n)
  end
  return newest and format('%d %d %s', width, current - newest + 1, table.concat(text, ' ', newest, oldest)), newest
end

local function sliding_window(text, verb, cost, pending, period, quota, segments, _, x)
  -- settle
  local width = period / segments
  local units, current, changed = settle(text, width, segments)
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
    local sum = 0
    for i = 1, segments + 1 do
      sum = sum + weight(i)
    end
    return sum
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
  local next, newest = window_text(units, width, current)
  if not newest then
    return changed and text and '', quota, 0, wait, taken
  end
  return changed and next, max(0, quota - estimate()), (current - newest + 2) * width + period - now, wait, taken
end
