-- Twin of core/slidinglog.go. State: the longest period under which a unit was taken, in
-- 7 bytes, and the instant at which each unit ends, as the records of records.lua. In the
-- state of an older version the period is missing, and the records are the instants at which
-- the units were taken, under the limit.

-- @slow

-- LOG_RECORD is the bytes of a unit's record, and of the period.
local LOG_RECORD = 7

-- sliding_log is a step. x is how far ahead a take or a peek may book, and the instant of the take
-- that a refund undoes or 0. It needs no y.
local function sliding_log(text, verb, cost, pending, period, quota, _, _, x)
  -- settle
  local list, longest, head = '', period, nil
  if text then
    if #text % LOG_RECORD ~= 0 then
      return nil
    end
    longest, head = instant(text, LOG_RECORD, 1), sub(text, 1, LOG_RECORD)
    if max(longest, MAX_PERIOD) ~= MAX_PERIOD then
      -- The state of an older version.
      longest, head = period, pack(period)
      local ends = { head }
      for i = 1, #text / LOG_RECORD do
        ends[i + 1] = pack(instant(text, LOG_RECORD, i) + period)
      end
      text = table.concat(ends)
    end
    -- The period is passed over with the units that have ended.
    list = sub(text, max(1, upto(text, LOG_RECORD, now)) * LOG_RECORD + 1)
  end

  local used, changed, latest = #list / LOG_RECORD, false, now + longest
  if used ~= 0 and max(latest, instant(list, LOG_RECORD, used)) ~= latest then
    -- The clock has stepped back.
    local sane = upto(list, LOG_RECORD, latest)
    list = table.concat({ sub(list, 1, sane * LOG_RECORD), string.rep(pack(latest), used - sane) })
    changed = true
  end

  local wait, sooner, units, later = 0, list, '', ''
  if verb == 'refund' then
    -- refund
    local first, last = 0, used
    if x ~= 0 then
      first, last = upto(list, LOG_RECORD, x + period - 1), upto(list, LOG_RECORD, x + period)
    end
    local left = max(first, last - cost)
    sooner, later = sub(list, 1, left * LOG_RECORD), sub(list, last * LOG_RECORD + 1)
    used, changed = used - last + left, true
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
      if used == 0 or max(longest, period) ~= longest then
        head = pack(period)
      elseif period ~= longest then
        local place = upto(list, LOG_RECORD, now + period) * LOG_RECORD
        sooner, later = sub(list, 1, place), sub(list, place + 1)
      end
      units = string.rep(pack(now + period), cost)
      used, changed = used + cost, true
    end
  end

  -- gauge
  if used == 0 then
    return changed and text and '', quota, 0, wait
  end
  if not changed then
    return false, max(0, quota - used), instant(list, LOG_RECORD, used) - now, wait
  end
  local next = table.concat({ head, sooner, units, later })
  return next, max(0, quota - used), instant(next, LOG_RECORD, used + 1) - now, wait
end
