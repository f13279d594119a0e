-- Twin of core/tokenbucket.go. State: "used mark period quota", the tokens that
-- are missing since the last refill at mark, and the refill they are under.
-- l.extra is the burst.
local token_bucket = { capacity = 'extra' }

function token_bucket.load(text, l)
  if not text then
    return { used = 0, mark = 0 }
  end
  local used, mark, period, quota = string.match(text, '^(%d+) (%d+) ([1-9]%d*) ([1-9]%d*)$')
  return used and { used = number(used), mark = number(mark), period = number(period), quota = number(quota) }
end

function token_bucket.settle(s, l)
  local period, quota = s.period, s.quota
  s.period, s.quota = l.period, l.quota
  if s.used == 0 then
    return false
  end
  local changed = s.mark > now
  s.mark = min(s.mark, now)
  local refills = floor((now - s.mark) / period)
  if refills >= ceil(s.used / quota) then
    s.used, s.mark = 0, 0
    return changed
  end
  s.used = s.used - refills * quota
  s.mark = s.mark + refills * period
  if period ~= l.period or quota ~= l.quota then
    s.mark = now
    changed = true
  end
  local used = min(s.used, l.extra)
  changed = changed or used ~= s.used
  s.used = used
  return changed
end

function token_bucket.delay(s, l, n)
  local missing = s.used + n - l.extra
  if missing <= 0 then
    return 0
  end
  return s.mark + ceil(missing / l.quota) * l.period - now
end

function token_bucket.take(s, l, n)
  if s.used == 0 then
    s.mark = now
  end
  s.used = s.used + n
end

function token_bucket.refund(s, l, op)
  local n = min(op.cost, s.used)
  if op.at ~= 0 then
    local enough = ceil(n / l.quota) + 1
    local since = min(enough, -floor((op.at - s.mark) / l.period))
    local ahead = min(enough, floor((op.at + op.reset - s.mark) / l.period))
    n = min(n, max(n - since * l.quota, (ahead - 1) * l.quota + 1, 0))
  end
  s.used = s.used - n
end

function token_bucket.gauge(s, l)
  if s.used == 0 then
    return l.extra, 0
  end
  return l.extra - s.used, s.mark + ceil(s.used / l.quota) * l.period - now
end

function token_bucket.dump(s)
  return string.format('%d %d %d %d', s.used, s.mark, s.period, s.quota)
end
