-- Twin of core/slidinglog.go. State: the longest period under which a unit was taken, in
-- 7 bytes, and the instant at which each unit ends, as the records of records.lua. In the
-- state of an older version the period is missing, and the records are the instants at which
-- the units were taken, under the limit.

-- @slow

-- LOG_RECORD is the bytes of a unit's record, and of the period.
local LOG_RECORD = 7

-- ends_of returns the instants one period after those of a list.
local function ends_of(list, period)
  local ends = {}
  for i = 1, #list / LOG_RECORD do
    ends[i] = pack(instant(list, LOG_RECORD, i) + period)
  end
  return table.concat(ends)
end

local function sliding_log(text, verb, cost, pending, period, quota, _, _, x)
  -- settle
  local list, longest = '', period
  if text then
    if #text % LOG_RECORD ~= 0 then
      return nil
    end
    longest, list = instant(text, LOG_RECORD, 1), sub(text, LOG_RECORD + 1)
    if longest > MAX_PERIOD then
      longest, list = period, ends_of(text, period)
    end
  end
  list = sub(list, upto(list, LOG_RECORD, now) * LOG_RECORD + 1)
  local sane, used = upto(list, LOG_RECORD, now + longest), #list / LOG_RECORD
  local changed = sane ~= used
  if changed then
    list = table.concat({ sub(list, 1, sane * LOG_RECORD), string.rep(pack(now + longest), used - sane) })
  end

  local wait = 0
  if verb == 'refund' then
    -- refund
    changed = true
    local first, last = 0, used
    if x ~= 0 then
      first, last = upto(list, LOG_RECORD, x + period - 1), upto(list, LOG_RECORD, x + period)
    end
    list = table.concat({ sub(list, 1, max(first, last - cost) * LOG_RECORD), sub(list, last * LOG_RECORD + 1) })
  elseif cost ~= 0 then
    -- delay
    local n = cost + pending
    if n > quota then
      wait = NEVER
    elseif used + n > quota then
      wait = instant(list, LOG_RECORD, used + n - quota) - now
    end
    -- take
    if verb == 'take' and wait <= x then
      local sooner = upto(list, LOG_RECORD, now + period) * LOG_RECORD
      longest = used == 0 and period or max(longest, period)
      list, changed = table.concat({ sub(list, 1, sooner), string.rep(pack(now + period), cost), sub(list, sooner + 1) }), true
    end
  end

  -- gauge
  used = #list / LOG_RECORD
  if used == 0 then
    return changed and text and '', quota, 0, wait
  end
  local next = changed and table.concat({ pack(longest), list })
  return next, max(0, quota - used), instant(list, LOG_RECORD, used) - now, wait
end
