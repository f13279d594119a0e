-- Twin of core/concurrency.go. State: the longest period under which a lease was
-- taken, in 7 bytes, and the records of records.lua, one for each unit: the expiry of
-- its lease and the 16 bytes of the lease's id. The records of a lease are neighbours.
-- In the state of an older version the period is missing and read as that of the limit.

-- @slow

-- LEASE_RECORD is the bytes of a unit's record.
local LEASE_RECORD = 23

-- PERIOD_BYTES is the length of the longest period in a state.
local PERIOD_BYTES = 7

-- clamp moves expiries after latest to latest. Only a clock that stepped back leaves
-- such expiries.
local function clamp(list, latest)
  local sane, total = upto(list, LEASE_RECORD, latest), #list / LEASE_RECORD
  if sane == total then
    return list, false
  end
  local records = { sub(list, 1, sane * LEASE_RECORD) }
  for i = sane + 1, total do
    records[#records + 1] = pack(latest)
    records[#records + 1] = sub(list, i * LEASE_RECORD - 15, i * LEASE_RECORD)
  end
  return table.concat(records), true
end

-- cut returns the list without the records of a lease, and the number of these records.
-- An id is 128 bits of a hash, so its bytes occur only in its own records.
local function cut(list, lease)
  local n, at = 0, string.find(list, lease, 1, true)
  while at do
    list = table.concat({ sub(list, 1, at - 8), sub(list, at + 16) })
    n, at = n + 1, string.find(list, lease, 1, true)
  end
  return list, n
end

-- concurrency is a step. x is how far ahead a take or a peek may book. lease, which is y in the
-- contract, is the 16 bytes of the id, or empty.
local function concurrency(text, verb, cost, pending, period, quota, _, _, x, lease)
  -- settle
  local list, longest, changed = text or '', period, false
  if #list % LEASE_RECORD == PERIOD_BYTES then
    longest, list = instant(list, LEASE_RECORD, 1), sub(list, PERIOD_BYTES + 1)
  end
  if #list % LEASE_RECORD ~= 0 then
    return nil
  end
  list = sub(list, upto(list, LEASE_RECORD, now) * LEASE_RECORD + 1)
  list, changed = clamp(list, now + longest)

  local wait, held = 0, #list / LEASE_RECORD
  if verb == 'refund' then
    -- refund
    list, changed = cut(list, lease), true
  elseif cost ~= 0 then
    -- delay
    local n = cost + pending
    local others, own = list, 0
    if lease ~= '' then
      others, own = cut(list, lease)
    end
    if n > quota then
      wait = NEVER
    elseif own == 0 and held + n > quota then
      wait = instant(list, LEASE_RECORD, held + n - quota) - now
    end
    -- take
    if verb == 'take' and wait <= x then
      local record, sooner = table.concat({ pack(now + period), lease }), upto(others, LEASE_RECORD, now + period)
      longest = #others == 0 and period or max(longest, period)
      list, changed = table.concat({ sub(others, 1, sooner * LEASE_RECORD), string.rep(record, own == 0 and cost or own),
        sub(others, sooner * LEASE_RECORD + 1) }), true
    end
  end

  -- gauge
  held = #list / LEASE_RECORD
  if held == 0 then
    return changed and text and '', quota, 0, wait
  end
  local next = changed and table.concat({ pack(longest), list })
  return next, max(0, quota - held), instant(list, LEASE_RECORD, held) - now, wait
end
