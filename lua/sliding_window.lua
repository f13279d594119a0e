-- Twin of core/slidingwindow.go. State: "width newest c c c", the microseconds
-- of a segment, the number of the newest that holds units, and the units of it
-- and of those before it. l.extra is the number of segments.
local sliding_window = { capacity = 'quota' }

function sliding_window.load(text, l)
  local s = { width = l.period / l.extra, units = {} }
  if not text then
    return s
  end
  local width, newest, counts = string.match(text, '^([1-9]%d*) (%d+)([ %d]+)$')
  if not width then
    return nil
  end
  s.width = number(width)
  local segment = number(newest)
  for units in string.gmatch(counts, '%d+') do
    s.units[segment] = number(units)
    segment = segment - 1
  end
  return s
end

-- settle also moves the units of segments of another width to the segment in
-- which theirs ended.
function sliding_window.settle(s, l)
  local width = l.period / l.extra
  local current = floor(now / width)
  local units = {}
  local changed = s.width ~= width and next(s.units) ~= nil
  for i, n in pairs(s.units) do
    local segment = floor(((i + 1) * s.width - 1) / width)
    changed = changed or segment > current
    segment = min(segment, current)
    if segment >= current - l.extra then
      units[segment] = (units[segment] or 0) + n
    end
  end
  s.width, s.units, s.current = width, units, current
  return changed
end

-- weight is what a segment counts by its overlap with the last period.
local function weight(s, l, segment)
  local overlap = min(s.width, (segment + 1) * s.width + l.period - now)
  return ceil(min(s.units[segment] or 0, l.quota) * overlap / s.width)
end

local function estimate(s, l)
  local n = 0
  for segment = s.current - l.extra, s.current do
    n = n + weight(s, l, segment)
  end
  return n
end

function sliding_window.delay(s, l, n)
  local over = estimate(s, l) + n - l.quota
  if over <= 0 then
    return 0
  end
  for segment = s.current - l.extra, s.current do
    local weighs = weight(s, l, segment)
    if over <= weighs then
      local overlap = floor((weighs - over) * s.width / min(s.units[segment], l.quota))
      return (segment + 1) * s.width + l.period - overlap - now
    end
    over = over - weighs
  end
end

function sliding_window.take(s, l, n)
  s.units[s.current] = (s.units[s.current] or 0) + n
end

function sliding_window.refund(s, l, op)
  local left = op.cost
  for segment = s.current, s.current - l.extra, -1 do
    local units = s.units[segment]
    if units and (op.at == 0 or segment == floor(op.at / s.width)) then
      local back = min(left, units)
      left = left - back
      s.units[segment] = units ~= back and units - back or nil
    end
  end
end

-- newest is the last segment that holds units, or nil.
local function newest(s)
  local last
  for segment in pairs(s.units) do
    last = max(last or segment, segment)
  end
  return last
end

function sliding_window.gauge(s, l)
  local last = newest(s)
  if not last then
    return l.quota, 0
  end
  return max(0, l.quota - estimate(s, l)), (last + 1) * s.width + l.period - now
end

function sliding_window.dump(s)
  local first, last = s.current, newest(s)
  for segment in pairs(s.units) do
    first = min(first, segment)
  end
  local text = { string.format('%d %d', s.width, last) }
  for segment = last, first, -1 do
    text[#text + 1] = string.format('%d', s.units[segment] or 0)
  end
  return table.concat(text, ' ')
end
