-- The driver of a step of one operation.
--
-- ARGV: the instant and the limit, then, where they are not take, 1, 0 and 0, the
-- verb, the cost, x and y. Reply: the instant and the decision, see answer.lua.
local key, limit, verb = KEYS[1], ARGV[2], ARGV[3]
-- A product reads digits in less time than tonumber.
local period, quota, extra = match(limit, '^(%d+) (%d+) (%d+)$')
period, quota, extra = period * 1, quota * 1, extra * 1
local text = redis.pcall('GET', key)
local unreadable = type(text) == 'table'

-- Nearly all end here, before anything is defined that they do not need.
if quick and quota == 1 and not verb and not unreadable then
  local next, remaining, reset = quick(text, 1, period, extra, limit)
  if next then
    write(key, next, reset)
    return { now, remaining, reset * 4 }
  end
end
