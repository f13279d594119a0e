-- What is left of the driver of a step of one operation.
local cost, x, y = 1, 0, 0
if verb then
  cost, x, y = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
else
  verb = 'take'
end
local next, remaining, reset, wait = nil, nil, nil, nil
if verb == 'reset' and not unreadable then
  next, remaining, reset, wait = step(false, 'peek', 0, 0, period, quota, extra, limit, 0, '')
  next = ''
elseif not unreadable then
  next, remaining, reset, wait = step(text, verb, cost, 0, period, quota, extra, limit, x, y)
end
if next == nil then
  quarantine(key)
  return { now, -1 }
end
save(key, text, next, reset)
local reply = { now, 0, 0 }
answer(reply, 1, verb, remaining, reset, wait, x)
return reply
