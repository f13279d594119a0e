-- Twin of core/fixedwindow.go. State: "used ends".
-- l.extra is 1 for windows aligned to the epoch.
local fixed_window = { capacity = 'quota' }

function fixed_window.load(text)
  if not text then
    return { used = 0, ends = 0 }
  end
  local used, ends = string.match(text, '^(%d+) (%d+)$')
  return used and { used = number(used), ends = number(ends) }
end

local function window_end(l)
  if l.extra == 1 then
    return now - now % l.period + l.period
  end
  return now + l.period
end

function fixed_window.settle(s, l)
  if s.used == 0 or s.ends <= now then
    s.used, s.ends = 0, 0
    return false
  end
  local ends = min(s.ends, now + l.period)
  if l.extra == 1 then
    ends = window_end(l)
  end
  local changed = ends ~= s.ends
  s.ends = ends
  return changed
end

function fixed_window.delay(s, l, n)
  if s.used + n <= l.quota then
    return 0
  end
  return s.ends - now
end

function fixed_window.take(s, l, n)
  if s.used == 0 then
    s.ends = window_end(l)
  end
  s.used = s.used + n
end

function fixed_window.refund(s, l, op)
  if op.at == 0 or op.at + op.reset == s.ends then
    s.used = max(0, s.used - op.cost)
  end
end

function fixed_window.gauge(s, l)
  if s.used == 0 then
    return l.quota, 0
  end
  return max(0, l.quota - s.used), s.ends - now
end

function fixed_window.dump(s)
  return string.format('%d %d', s.used, s.ends)
end
