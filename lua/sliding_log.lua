-- Twin of core/slidinglog.go. State: the instant of every unit, as the records of
-- records.lua.

-- @slow

-- LOG_RECORD is the bytes of a unit's record.
local LOG_RECORD = 7

local function sliding_log(text, verb, cost, pending, period, quota, _, _, x)
  -- settle
  local list = text or ''
  if #list % LOG_RECORD ~= 0 then
    return nil
  end
  list = sub(list, upto(list, LOG_RECORD, now - period) * LOG_RECORD + 1)
  local past, used = upto(list, LOG_RECORD, now), #list / LOG_RECORD
  local changed = past ~= used
  if changed then
    list = table.concat({ sub(list, 1, past * LOG_RECORD), string.rep(pack(now), used - past) })
  end

  local wait = 0
  if verb == 'refund' then
    -- refund
    changed = true
    local first, last = 0, used
    if x ~= 0 then
      first, last = upto(list, LOG_RECORD, x - 1), upto(list, LOG_RECORD, x)
    end
    list = table.concat({ sub(list, 1, max(first, last - cost) * LOG_RECORD), sub(list, last * LOG_RECORD + 1) })
  elseif cost ~= 0 then
    -- delay
    local n = cost + pending
    if n > quota then
      wait = NEVER
    elseif used + n > quota then
      wait = instant(list, LOG_RECORD, used + n - quota) + period - now
    end
    -- take
    if verb == 'take' and wait <= x then
      list, changed = table.concat({ list, string.rep(pack(now), cost) }), true
    end
  end

  -- gauge
  used = #list / LOG_RECORD
  if used == 0 then
    return changed and text and '', quota, 0, wait
  end
  return changed and list, max(0, quota - used), instant(list, LOG_RECORD, used) + period - now, wait
end
