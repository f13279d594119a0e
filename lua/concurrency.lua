-- Twin of core/concurrency.go. State: packed records of the expiry and the 16
-- bytes of the lease's id, one for each unit; those of a lease are neighbours.
local RECORD = 23

-- clamp moves expiries after latest, where only a clock that stepped back or a
-- shorter period can have left them, to latest.
local function clamp(list, latest)
  local sane, total = upto(list, RECORD, latest), #list / RECORD
  if sane == total then
    return list, false
  end
  local records = { string.sub(list, 1, sane * RECORD) }
  for i = sane + 1, total do
    records[#records + 1] = pack(latest)
    records[#records + 1] = string.sub(list, i * RECORD - 15, i * RECORD)
  end
  return table.concat(records), true
end

-- cut returns the list without a lease's records, and how many those were. Ids
-- are 128 bits of a hash: found elsewhere than in its place would be a collision.
local function cut(list, lease)
  local n, at = 0, string.find(list, lease, 1, true)
  while at do
    list = table.concat({ string.sub(list, 1, at - 8), string.sub(list, at + 16) })
    n, at = n + 1, string.find(list, lease, 1, true)
  end
  return list, n
end

local function concurrency(text, verb, cost, pending, period, quota, _, _, x, lease)
  local list = text or ''
  if #list % RECORD ~= 0 then
    return nil
  end
  list = string.sub(list, upto(list, RECORD, now) * RECORD + 1)
  local changed
  list, changed = clamp(list, now + period)

  local wait, held = 0, #list / RECORD
  if verb == 'refund' then
    list, changed = cut(list, lease), true
  elseif cost ~= 0 then
    local n = cost + pending
    local others, own = list, 0
    if lease ~= '' then
      others, own = cut(list, lease)
    end
    if n > quota then
      wait = NEVER
    elseif own == 0 and held + n > quota then
      wait = instant(list, RECORD, held + n - quota) - now
    end
    if verb == 'take' and wait <= x then
      local record = table.concat({ pack(now + period), lease })
      list, changed = table.concat({ others, string.rep(record, own == 0 and cost or own) }), true
    end
  end

  held = #list / RECORD
  if held == 0 then
    return text and '', quota, 0, wait
  end
  return changed and list, max(0, quota - held), instant(list, RECORD, held) - now, wait
end
