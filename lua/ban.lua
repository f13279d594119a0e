-- Twin of core/ban.go. A key that has strikes or bans has the state STRUCK, then in
-- 7 bytes each the number of its strikes, the instant until which they count or, if there
-- are none, the ban lasts, the span of the latest ban and the instant at which that is
-- forgotten, and then the state of its limit, empty if that is fresh. The state of any
-- other key is that of its limit alone.
--
-- A ban is the text "strikes within for max", or '' for none.

-- @slow

local STRUCK = 'b' -- which begins the state of no algorithm
local STRUCK_HEAD = 29

-- open returns what a state keeps of refusals, if it does, and the state of the limit,
-- which is nil if text is no state.
local function open(text)
  if not text or sub(text, 1, 1) ~= STRUCK then
    return nil, text
  end
  if #text < STRUCK_HEAD then
    return nil, nil
  end
  local list = sub(text, 2, STRUCK_HEAD)
  local conduct = { strikes = min(instant(list, 7, 1), NEVER), till = min(instant(list, 7, 2), NEVER),
    span = min(instant(list, 7, 3), NEVER), forget = min(instant(list, 7, 4), NEVER) }
  return conduct, #text ~= STRUCK_HEAD and sub(text, STRUCK_HEAD + 1)
end

-- close puts a conduct that lasts in front of the state of the limit.
local function close(conduct, inner)
  if conduct.till == 0 and conduct.forget == 0 then
    return inner
  end
  return table.concat({ STRUCK, pack(conduct.strikes), pack(conduct.till), pack(conduct.span), pack(conduct.forget), inner })
end

-- none returns the conduct of a key that was never refused.
local function none()
  return { strikes = 0, till = 0, span = 0, forget = 0 }
end

-- ban_left returns the span until the ban ends, 0 without one.
local function ban_left(conduct)
  return conduct.strikes == 0 and max(0, conduct.till - now) or 0
end

-- settle_conduct brings a conduct to now. Under a ban it pulls back instants that are too far
-- in the future, and reports whether there were any.
local function settle_conduct(conduct, ban)
  local changed = false
  if ban ~= '' then
    local _, within, _, longest = match(ban, '^(%d+) (%d+) (%d+) (%d+)$')
    local before, forget = conduct.till, conduct.forget
    conduct.till = min(before, now + (conduct.strikes == 0 and min(conduct.span, longest) or within))
    conduct.forget = min(forget, now + longest + ban_left(conduct))
    changed = conduct.till ~= before or conduct.forget ~= forget
  end

  if now >= conduct.till then
    conduct.strikes, conduct.till = 0, 0
  end
  if now >= conduct.forget then
    conduct.span, conduct.forget = 0, 0
  end
  return changed
end

-- begin begins a ban of at most the span. A ban that ends later stays.
local function begin(conduct, span, longest)
  local left = ban_left(conduct)
  conduct.strikes, conduct.span = 0, max(left, min(span, longest))
  conduct.till = now + conduct.span
  conduct.forget = conduct.till + longest
end

-- impose begins a ban.
local function impose(conduct, ban)
  local _, _, span, longest = match(ban, '^(%d+) (%d+) (%d+) (%d+)$')
  begin(conduct, span, longest)
end

-- strike counts a refusal of a key that is not banned.
local function strike(conduct, ban)
  local most, within, span, longest = match(ban, '^(%d+) (%d+) (%d+) (%d+)$')
  if conduct.strikes == 0 then
    conduct.till = now + within
  end
  conduct.strikes = conduct.strikes + 1
  if conduct.strikes >= tonumber(most) then
    begin(conduct, max(span, 2 * conduct.span), longest)
  end
end

-- guard returns step for states that may have strikes or bans, with three verbs more: lift,
-- impose, and strike, which counts a refusal. A take that is refused counts one by itself. The
-- function takes the ban as one argument more, and returns BANNED as what remains while the
-- key is banned. x and y are those of step: x is how far ahead a take or a peek may book, and y is
-- passed on. It returns one value more if the key has strikes or bans:
--
--   lasts  the span until the key is fresh, which may be longer than the reset
local function guard(step)
  return function(text, verb, cost, pending, period, quota, extra, limit, x, y, ban)
    local conduct, inner = open(text)
    if verb == 'reset' then
      conduct = nil
    elseif inner == nil then
      return nil
    end
    -- A refund of a fresh key changes it if it has strikes that are to be forgotten.
    local changed, left, does, units, ahead = conduct and verb == 'refund', 0, verb, cost, x
    if conduct then
      changed = settle_conduct(conduct, ban) or changed
      left = ban ~= '' and ban_left(conduct) or 0
    end
    local asks = (verb == 'take' or verb == 'peek') and cost ~= 0
    if verb == 'lift' then
      changed, left, does, units = conduct ~= nil, 0, 'peek', 0
      conduct = nil
    elseif verb == 'impose' then
      conduct, changed, does, units = conduct or none(), true, 'peek', 0
      impose(conduct, ban)
      left = ban_left(conduct)
    elseif asks and left ~= 0 then
      does, ahead = 'peek', 0
    end
    local next, remaining, reset, wait, taken, lasting =
      step(inner, does, units, pending, period, quota, extra, limit, ahead, y)
    if next == nil then
      return nil
    end
    local refused = verb == 'strike' or verb == 'take' and wait > x and wait ~= NEVER
    if refused and left == 0 and ban ~= '' then
      conduct, changed = conduct or none(), true
      strike(conduct, ban)
      left = ban_left(conduct)
    end
    if left ~= 0 then
      remaining = BANNED
      wait = max(wait, asks and left or 0)
    end
    if changed then
      next = next or inner or ''
    end
    if not conduct then
      return next, remaining, reset, wait, taken, lasting
    end
    return next and close(conduct, next), remaining, reset, wait, taken,
      max(conduct.till - now, conduct.forget - now, lasting or reset)
  end
end

-- settled returns a state with its conduct brought to now, '' for that of a fresh key.
local function settled(text, ban)
  local conduct, inner = open(text)
  if not conduct then
    return inner or ''
  end
  settle_conduct(conduct, ban)
  return close(conduct, inner or '')
end

-- banned_for returns the span until the ban of a state ends, 0 without one.
local function banned_for(text, ban)
  local conduct = open(text)
  if not conduct then
    return 0
  end
  settle_conduct(conduct, ban)
  return ban_left(conduct)
end
