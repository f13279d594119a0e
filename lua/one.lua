-- The driver of a step of one operation.
--
-- ARGV: the instant and the limit, then, where they are not take, 1, 0 and 0, the
-- verb, the cost, x and y. Reply: the instant and the decision, see answer.lua.
local key, limit, verb, cost, x, y = KEYS[1], ARGV[2], ARGV[3], 1, 0, 0
if verb then
  cost, x, y = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
else
  verb = 'take'
end
-- A product reads digits in less time than tonumber.
local period, quota, extra = match(limit, '^(%d+) (%d+) (%d+)$')
period, quota, extra = period * 1, quota * 1, extra * 1
local text, next, remaining, reset, wait = redis.pcall('GET', key), nil, nil, nil, nil
if verb == 'reset' and type(text) ~= 'table' then
  next, remaining, reset, wait = step(false, 'peek', 0, 0, period, quota, extra, limit, 0, '')
  next = ''
elseif type(text) ~= 'table' then
  if quick and quota == 1 and verb == 'take' then
    next, remaining, reset, wait = quick(text, cost, period, extra, limit)
  end
  if not next then
    next, remaining, reset, wait = step(text, verb, cost, 0, period, quota, extra, limit, x, y)
  end
end
if next == nil then
  quarantine(key)
  return { now, -1 }
end
save(key, text, next, reset)
local reply = { now, 0, 0 }
answer(reply, 1, verb, remaining, reset, wait, x)
return reply
