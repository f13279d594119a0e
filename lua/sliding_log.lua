-- Twin of core/slidinglog.go. State: the instant of every unit, packed.
local sliding_log = { capacity = 'quota' }

function sliding_log.load(text)
  text = text or ''
  return #text % 7 == 0 and { list = text } or nil
end

function sliding_log.settle(s, l)
  local list = string.sub(s.list, upto(s.list, 7, now - l.period) * 7 + 1)
  local past = upto(list, 7, now)
  local future = #list / 7 - past
  if future == 0 then
    s.list = list
    return false
  end
  s.list = table.concat({ string.sub(list, 1, past * 7), string.rep(pack(now), future) })
  return true
end

function sliding_log.delay(s, l, n)
  local excess = #s.list / 7 + n - l.quota
  if excess <= 0 then
    return 0
  end
  return instant(s.list, 7, excess) + l.period - now
end

function sliding_log.take(s, l, n)
  s.list = table.concat({ s.list, string.rep(pack(now), n) })
end

function sliding_log.refund(s, l, op)
  local first, last = 0, #s.list / 7
  if op.at ~= 0 then
    first, last = upto(s.list, 7, op.at - 1), upto(s.list, 7, op.at)
  end
  local left = max(first, last - op.cost)
  s.list = table.concat({ string.sub(s.list, 1, left * 7), string.sub(s.list, last * 7 + 1) })
end

function sliding_log.gauge(s, l)
  local used = #s.list / 7
  if used == 0 then
    return l.quota, 0
  end
  return max(0, l.quota - used), instant(s.list, 7, used) + l.period - now
end

function sliding_log.dump(s)
  return s.list
end
