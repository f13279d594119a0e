-- The driver of a step of one operation.
--
-- ARGV: the instant; the limit; in a script with ban.lua the ban; and, unless the operation
-- takes 1 with 0 as x and y, the verb, the cost, x and y. Reply: the instant and the
-- decision, see reply.lua.
--
-- quick and step are the functions of the algorithm. quick is nil if there is none.
local key, limit, verb = KEYS[1], ARGV[2], ARGV[FIRST]
-- A multiplication converts digits in less time than tonumber.
local period, quota, extra = match(limit, '^(%d+) (%d+) (%d+)$')
period, quota, extra = period * 1, quota * 1, extra * 1
local text = redis.pcall('GET', key)
local unreadable = type(text) == 'table'

-- Most calls end here.
if quick and quota == 1 and not verb and not unreadable then
  local next, remaining, reset = quick(text, 1, period, extra, limit)
  if next then
    write(key, next, reset)
    return { now, remaining, reset * 4 }
  end
end

-- @slow

local cost, x, y = 1, 0, 0
if verb then
  cost, x, y = tonumber(ARGV[FIRST + 1]), tonumber(ARGV[FIRST + 2]), ARGV[FIRST + 3]
else
  verb = 'take'
end
local mark, number = string.byte(not unreadable and text or '', 1, 2)
if mark == LATER and (number or 0) > FORMAT then
  return { now, OF_FORMAT - number }
elseif mark == LATER and number == FORMAT and not BANS then
  error(NEEDS_BANS) -- nothing is written yet
end
local next, remaining, reset, wait, taken, lasts, loan = nil, nil, nil, nil, nil, nil, nil
if not unreadable then
  next, remaining, reset, wait, taken, lasts, loan =
    step(text, verb, cost, 0, period, quota, extra, limit, x, y, BAN)
end
if next == nil then
  quarantine(key)
  return { now, -1 }
end
save(key, text, next, lasts or reset)
local reply, size = { now, remaining, reset * 4 }, 3
if wait ~= 0 or loan then
  size = answer(reply, 1, verb, remaining, reset, wait, x, loan)
end
if verb == 'debit' then
  reply[size + 1] = taken
end
return reply
