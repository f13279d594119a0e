-- Twin of core/slidinglog.go. State: the instant of every unit, packed.
local function sliding_log(text, verb, cost, pending, period, quota, _, _, x)
  local list = text or ''
  if #list % 7 ~= 0 then
    return nil
  end
  list = string.sub(list, upto(list, 7, now - period) * 7 + 1)
  local past, used = upto(list, 7, now), #list / 7
  local changed = past ~= used
  if changed then
    list = table.concat({ string.sub(list, 1, past * 7), string.rep(pack(now), used - past) })
  end

  local wait = 0
  if verb == 'refund' then
    changed = true
    local first, last = 0, used
    if x ~= 0 then
      first, last = upto(list, 7, x - 1), upto(list, 7, x)
    end
    list = table.concat({ string.sub(list, 1, max(first, last - cost) * 7), string.sub(list, last * 7 + 1) })
  elseif cost ~= 0 then
    local n = cost + pending
    if n > quota then
      wait = NEVER
    elseif used + n > quota then
      wait = instant(list, 7, used + n - quota) + period - now
    end
    if verb == 'take' and wait <= x then
      list, changed = table.concat({ list, string.rep(pack(now), cost) }), true
    end
  end

  used = #list / 7
  if used == 0 then
    return text and '', quota, 0, wait
  end
  return changed and list, max(0, quota - used), instant(list, 7, used) + period - now, wait
end
