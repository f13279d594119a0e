-- Twin of core/gcra.go. State: "used mark period quota burst": used units were
-- taken since mark, the queue was empty at mark, and period/quota is in lowest
-- terms, so that it is empty again at mark + used * period / quota.
-- l.extra is the burst.
local gcra = { capacity = 'extra' }

function gcra.load(text, l)
  if not text then
    return { used = 0, mark = 0 }
  end
  local used, mark, period, quota, extra = string.match(text, '^(%d+) (%d+) ([1-9]%d*) ([1-9]%d*) ([1-9]%d*)$')
  if not used then
    return nil
  end
  local s = { mark = number(mark), period = number(period), quota = number(quota), extra = number(extra) }
  -- No more can be in use than a burst, an hour's bookings and a turn of quota.
  s.used = min(number(used), s.extra + s.quota * (floor(3600000000 / s.period) + 3))
  return s
end

-- span is how long it takes until n units of rate r have come back.
local function span(r, n)
  return n * floor(r.period / r.quota) + ceil(n * (r.period % r.quota) / r.quota)
end

-- back is how many units of rate r have come back after t. The division may be
-- off by a bit, so it starts one above and span, which is exact, decides.
local function back(r, t)
  local rest = t % r.period
  local n = floor(rest * r.quota / r.period) + 1
  while span(r, n) > rest do
    n = n - 1
  end
  return floor(t / r.period) * r.quota + n
end

function gcra.settle(s, l)
  local old = { period = s.period, quota = s.quota }
  local extra = s.extra
  s.period, s.quota, s.extra = l.period, l.quota, l.extra
  if s.used == 0 then
    return false
  end
  local changed = s.mark > now
  if changed then
    s.mark, s.used = now, min(s.used, extra)
  end
  if now - s.mark >= span(old, s.used) then
    s.used, s.mark = 0, 0
    return changed
  end
  local turns = floor((now - s.mark) / old.period)
  s.mark = s.mark + turns * old.period
  s.used = s.used - turns * old.quota
  if old.period == l.period and old.quota == l.quota and extra == l.extra then
    return changed
  end
  s.used = min(s.used - back(old, now - s.mark), l.extra)
  s.mark = now
  return true
end

function gcra.delay(s, l, n)
  local missing = max(0, s.used + n - l.extra)
  if s.used == 0 then
    return span(l, missing)
  end
  return max(0, s.mark + span(l, missing) - now)
end

function gcra.take(s, l, n)
  if s.used == 0 then
    s.mark = now
  end
  s.used = s.used + n
end

function gcra.refund(s, l, op)
  if op.at == 0 or s.used == 0 then
    s.used = max(0, s.used - op.cost)
    return
  end
  local upto = min(s.used, back(l, max(0, op.at + op.reset - s.mark)))
  local booked = s.used - back(l, now - s.mark) > l.extra
  if booked and upto < s.used or s.mark + span(l, upto) <= now then
    return
  end
  if s.mark + span(l, max(0, upto - op.cost)) >= now then
    s.used = s.used - min(op.cost, upto)
  else
    s.used, s.mark = s.used - upto, now
  end
end

function gcra.gauge(s, l)
  if s.used == 0 then
    return l.extra, 0
  end
  return max(0, l.extra - s.used + back(l, now - s.mark)), s.mark + span(l, s.used) - now
end

function gcra.dump(s)
  return string.format('%d %d %d %d %d', s.used, s.mark, s.period, s.quota, s.extra)
end
