-- Twin of core/credit.go. A key that was granted units has the state LENT, then in a byte the number
-- of its credits, for each in 7 bytes each the instant at which it ends, the units that are left and
-- those that are used, in the order of the ends, and then the state that it would have without,
-- empty if that is fresh. Such a state is of format 2.

-- @slow

local LENT = '\254\2'
local LENT_HEAD = 3
local CREDIT = 21 -- bytes of a credit
local MAX_CREDITS = 8
local MAX_CREDIT_SPAN = 315576000000000

-- open_credits returns the credits of a state that have not ended, none if it has none, and the
-- state of the rest, which is nil if text is no state.
local function open_credits(text)
  if not text or sub(text, 1, 2) ~= LENT then
    return {}, text
  end
  local size = (string.byte(text, LENT_HEAD) or 0) * CREDIT
  local credits, list = {}, sub(text, LENT_HEAD + 1, LENT_HEAD + size)
  if #list ~= size then
    return {}, nil
  end
  for i = 1, size / CREDIT do
    local till = instant(list, 7, 3 * i - 2)
    if till > now then
      credits[#credits + 1] = { till = till, left = min(instant(list, 7, 3 * i - 1), NEVER),
        used = min(instant(list, 7, 3 * i), NEVER) }
    end
  end
  return credits, #text ~= LENT_HEAD + size and sub(text, LENT_HEAD + size + 1)
end

-- close_credits puts the credits in front of a state.
local function close_credits(credits, inner)
  local parts = { LENT, string.char(#credits) }
  for _, credit in ipairs(credits) do
    parts[#parts + 1] = table.concat({ pack(credit.till), pack(credit.left), pack(credit.used) })
  end
  parts[#parts + 1] = inner
  return table.concat(parts)
end

-- credit_left returns the units that may be taken beside the limit.
local function credit_left(credits)
  local left = 0
  for _, credit in ipairs(credits) do
    left = left + credit.left
  end
  return left
end

-- add_credit adds n units that end at an instant, and reports whether that can be.
local function add_credit(credits, n, till)
  local all, place, used_up = n, 1, nil
  for i = #credits, 1, -1 do
    local credit = credits[i]
    all = all + credit.left + credit.used
    if credit.left == 0 then
      used_up = i
    end
  end
  if till <= now or till > now + MAX_CREDIT_SPAN or all > NEVER then
    return false
  end

  for _, credit in ipairs(credits) do
    if credit.till == till then
      credit.left = credit.left + n
      return true
    end
    place = place + max(0, min(1, till - credit.till))
  end
  -- A credit that is used up makes room.
  if #credits == MAX_CREDITS then
    if not used_up then
      return false
    end
    table.remove(credits, used_up)
    place = place - (place > used_up and 1 or 0)
  end
  table.insert(credits, place, { till = till, left = n, used = 0 })
  return true
end

-- draw takes n units from the credits that end first, and returns the end of the first of them.
local function draw(credits, n)
  local till = 0
  for i = #credits, 1, -1 do
    local before = 0
    for j = 1, i - 1 do
      before = before + credits[j].left
    end
    local credit = credits[i]
    local k = max(0, min(credit.left, n - before))
    credit.left, credit.used = credit.left - k, credit.used + k
    if k ~= 0 then
      till = credit.till
    end
  end
  return till
end

-- give_back gives up to n used units back to the credits that end at an instant or later, and
-- reports whether there were any.
local function give_back(credits, n, till)
  local given = 0
  for _, credit in ipairs(credits) do
    local k = credit.till >= till and min(n - given, credit.used) or 0
    credit.left, credit.used, given = credit.left + k, credit.used - k, given + k
  end
  return given ~= 0
end

-- lend returns step for states that may have credits, with two verbs more: grant and revoke. y is
-- the instant at which the units of a grant end, and of a refund the reset, or three numbers with a
-- space between them: the reset, the units that came from credits, and the end of the first of
-- these. The function returns one value more if the key has units of credits, or took some: a
-- table with the units that are left, those that were taken, and the end of the first of these. Its
-- field refused is set if the wait is none that can be booked. A grant that cannot be has the wait
-- NEVER.
local function lend(step)
  return function(text, verb, cost, pending, period, quota, extra, limit, x, y, ban)
    local credits, inner = open_credits(text)
    -- What is asked of the step below: the verb, the units, how far ahead it may book.
    local does, units, ahead, changed, refused = verb, cost, x, false, nil
    local from, first = 0, 0

    if verb == 'refund' then
      local reset, n, till = match(y, '^(%d+) (%d+) (%d+)$')
      if reset then
        n, till, y = min(n, cost), till * 1, reset * 1
        units = cost - n
        changed = till > now and give_back(credits, n, till)
      end
    elseif verb == 'grant' then
      changed = add_credit(credits, cost, y * 1)
      refused = not changed and NEVER or nil
      does, units, ahead, y = 'peek', 0, 0, ''
    elseif verb == 'revoke' then
      changed, credits = #credits ~= 0, {}
      does, units, y = 'peek', 0, ''
    elseif cost ~= 0 and #credits ~= 0 and (verb == 'take' or verb == 'peek') then
      -- Nothing of a calendar fits if the server's clock is outside of its windows.
      local _, remaining, _, wait = step(inner, 'peek', 1, 0, period, quota, extra, limit, 0, y, ban)
      local banned = remaining == BANNED and banned_for(inner, ban) or 0
      if wait ~= NEVER then
        -- What the credits lack, the limit has to have before the first of them ends.
        local lacks, span = cost + pending - credit_left(credits), 0
        for i = 1, #credits + 1 do
          span = banned
          if lacks > 0 then
            _, _, _, span = step(inner, 'peek', lacks, 0, period, quota, extra, limit, 0, y, ban)
          end
          if i > #credits or now + span < credits[i].till then
            break
          end
          lacks = lacks + credits[i].left
        end

        if span == 0 then
          units, ahead = verb == 'take' and min(cost, remaining) or 0, 0
          from = verb == 'take' and cost - units or 0
          first, changed = draw(credits, from), from ~= 0
        else
          _, _, _, wait = step(inner, 'peek', cost, pending, period, quota, extra, limit, x, y, ban)
          if wait > x or banned ~= 0 then
            does, units, refused = 'peek', 0, span
            if verb == 'take' and span ~= NEVER then
              does = 'strike' -- if there is a ban
            end
          end
        end
      end
    end

    local next, remaining, reset, wait, taken, lasting =
      step(inner, does, units, pending, period, quota, extra, limit, ahead, y, ban)
    if next == nil then
      return nil
    end
    wait = refused or wait
    if does == 'strike' and remaining == BANNED then
      wait = max(wait, banned_for(next, ban))
    end
    -- A refund of a key that is fresh but for credits changes it, as they may have ended.
    if changed or verb == 'refund' and text and not inner then
      next = next or settled(inner, ban)
    end
    local left = credit_left(credits)
    local loan = (left ~= 0 or from ~= 0 or refused) and { left, from, first, refused = refused } or nil
    if remaining ~= BANNED then
      remaining = min(remaining + left, NEVER)
    end
    if #credits == 0 then
      return next, remaining, reset, wait, taken, lasting, loan
    end
    return next and close_credits(credits, next), remaining, reset, wait, taken,
      max(credits[#credits].till - now, lasting or reset), loan
  end
end

-- banned_for is that of ban.lua for a state that may have credits.
local ban_left_of = banned_for
local function banned_for(text, ban)
  local _, inner = open_credits(text)
  return ban_left_of(inner, ban)
end

-- save never shortens the time to live of a key with strikes or credits: a strike and a take of
-- credit leave the state of the limit as it is, which may be under another limit than that of the
-- operation.
local save_state = save
local function save(key, text, next, reset)
  local first = sub(next or '', 1, 1)
  if first == STRUCK or first == sub(LENT, 1, 1) then
    reset = max(reset, (redis.call('PTTL', key) - keep) * 1000)
  end
  save_state(key, text, next, reset)
end
