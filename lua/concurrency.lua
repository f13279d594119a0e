-- Twin of core/concurrency.go. State: packed records of the expiry and the 16
-- bytes of the lease's id, one for each unit; those of a lease are neighbours.
local concurrency = { capacity = 'quota' }

local RECORD = 23

function concurrency.load(text)
  text = text or ''
  return #text % RECORD == 0 and { list = text } or nil
end

function concurrency.settle(s, l)
  local list = string.sub(s.list, upto(s.list, RECORD, now) * RECORD + 1)
  local latest = now + l.period
  local sane, total = upto(list, RECORD, latest), #list / RECORD
  s.list = list
  if sane == total then
    return false
  end
  local records = { string.sub(list, 1, sane * RECORD) }
  for i = sane + 1, total do
    records[#records + 1] = pack(latest)
    records[#records + 1] = string.sub(list, i * RECORD - 15, i * RECORD)
  end
  s.list = table.concat(records)
  return true
end

-- cut returns the list without a lease's records, and how many those were. Ids
-- are 128 bits of a hash: found elsewhere than in its place would be a collision.
local function cut(list, lease)
  local at = string.find(list, lease, 1, true)
  local n = 0
  while at do
    list = table.concat({ string.sub(list, 1, at - 8), string.sub(list, at + 16) })
    n = n + 1
    at = string.find(list, lease, 1, true)
  end
  return list, n
end

function concurrency.delay(s, l, n, lease)
  if #lease == 16 and string.find(s.list, lease, 1, true) then
    return 0
  end
  local excess = #s.list / RECORD + n - l.quota
  if excess <= 0 then
    return 0
  end
  return instant(s.list, RECORD, excess) - now
end

function concurrency.take(s, l, n, lease)
  local list, held = cut(s.list, lease)
  if held == 0 then
    held = n
  end
  local record = table.concat({ pack(now + l.period), lease })
  s.list = table.concat({ list, string.rep(record, held) })
end

function concurrency.refund(s, l, op)
  s.list = cut(s.list, op.lease)
end

function concurrency.gauge(s, l)
  local held = #s.list / RECORD
  if held == 0 then
    return l.quota, 0
  end
  return max(0, l.quota - held), instant(s.list, RECORD, held) - now
end

function concurrency.dump(s)
  return s.list
end
