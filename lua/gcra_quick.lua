-- gcra_quick is gcra for nearly all takes: of a new key, or one that was last used
-- under this limit, where units come back one by one every period, at once. It
-- returns nil where gcra has to decide: if the take is refused, units are booked, or
-- the clock has stepped back.
local function gcra_quick(text, cost, period, burst, limit)
  local used, mark = 0, now
  if text then
    if sub(text, HEAD + 1) ~= limit then
      return nil
    end
    used, mark = struct.unpack('>dd', text)
    local since = now - mark
    if since < 0 then
      return nil
    end
    local turns = (since - since % period) / period
    if turns >= used then
      used, mark = 0, now
    else
      used, mark = used - turns, mark + turns * period
    end
  end
  used = used + cost
  if used > burst then
    return nil
  end
  return struct.pack(PAIR, used, mark, limit), burst - used, mark + used * period - now
end
