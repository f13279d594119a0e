-- Twin of core/slidingwindow.go. State: "width newest c c c", the microseconds
-- of a segment, the number of the newest that holds units, and the units of it
-- and of those before it. l.extra is the number of segments.
local sliding_window = { capacity = 'quota' }

function sliding_window.load(text, l)
  local s = { width = l.period / l.extra, newest = 0, units = {} }
  if not text then
    return s
  end
  local width, newest, counts = string.match(text, '^([1-9]%d*) (%d+)([ %d]+)$')
  if not width then
    return nil
  end
  s.width, s.newest = number(width), number(newest)
  for units in string.gmatch(counts, '%d+') do
    s.units[#s.units + 1] = number(units)
  end
  return s
end

-- settle lays out s.units from the current segment, s.newest, back to the
-- oldest that counts. Units of segments of another width go to the segment in
-- which theirs ended.
function sliding_window.settle(s, l)
  local width, units = l.period / l.extra, {}
  local current, changed = floor(now / width), s.width ~= width
  for i = 1, l.extra + 1 do
    units[i] = 0
  end
  for i, n in ipairs(s.units) do
    local segment = floor(((s.newest - i + 2) * s.width - 1) / width)
    changed = changed or segment > current
    local age = max(0, current - segment)
    if age <= l.extra then
      units[age + 1] = units[age + 1] + n
    end
  end
  s.width, s.newest, s.units = width, current, units
  return changed
end

-- leaves is when the segment that is the i-th from the newest stops to count.
local function leaves(s, l, i)
  return (s.newest - i + 2) * s.width + l.period
end

-- weight is what the i-th segment counts by its overlap with the last period.
local function weight(s, l, i)
  local overlap = min(s.width, leaves(s, l, i) - now)
  return ceil(min(s.units[i], l.quota) * overlap / s.width)
end

local function estimate(s, l)
  local n = 0
  for i = 1, l.extra + 1 do
    n = n + weight(s, l, i)
  end
  return n
end

function sliding_window.delay(s, l, n)
  local over = estimate(s, l) + n - l.quota
  if over <= 0 then
    return 0
  end
  for i = l.extra + 1, 1, -1 do
    local weighs = weight(s, l, i)
    if over <= weighs then
      local overlap = floor((weighs - over) * s.width / min(s.units[i], l.quota))
      return leaves(s, l, i) - overlap - now
    end
    over = over - weighs
  end
end

function sliding_window.take(s, l, n)
  s.units[1] = s.units[1] + n
end

function sliding_window.refund(s, l, op)
  local left = op.cost
  for i, units in ipairs(s.units) do
    if op.at == 0 or s.newest - i + 1 == floor(op.at / s.width) then
      local back = min(left, units)
      s.units[i], left = units - back, left - back
    end
  end
end

-- first is the place of the newest segment that holds units, or nil.
local function first(s)
  for i, units in ipairs(s.units) do
    if units ~= 0 then
      return i
    end
  end
end

function sliding_window.gauge(s, l)
  local i = first(s)
  if not i then
    return l.quota, 0
  end
  return max(0, l.quota - estimate(s, l)), leaves(s, l, i) - now
end

function sliding_window.dump(s)
  local text, tail = {}, 0
  local from = first(s)
  for i = from, #s.units do
    text[#text + 1] = string.format('%d', s.units[i])
    tail = s.units[i] == 0 and tail or #text
  end
  return string.format('%d %d %s', s.width, s.newest - from + 1, table.concat(text, ' ', 1, tail))
end
