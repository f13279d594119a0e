-- The driver of steps of several operations, each all or nothing. ARGV: the
-- instant, the operations in a step, the algorithm of each operation of a step
-- by its letter, then the operations.
local reply = { now }
local size = tonumber(ARGV[2])

-- decide carries out the step of the operations from first on.
local function decide(first)
  local ops, granted, readable = {}, true, true
  for i = first, first + size - 1 do
    local op = open(algorithms[ARGV[2 + i - first + 1]], i)
    ops[#ops + 1] = op
    readable = readable and op.state
  end
  if not readable then
    for _, op in ipairs(ops) do
      for _, value in ipairs({ op.state and 0 or -1, 0, 0, 0, 0 }) do
        reply[#reply + 1] = value
      end
    end
    return
  end
  for _, op in ipairs(ops) do
    begin(op)
  end
  for _, op in ipairs(ops) do
    op.state = states[op.key]
    verdict(op)
    granted = granted and (op.allowed or op.verb ~= 'take')
  end
  for _, op in ipairs(ops) do
    if granted then
      charge(op)
    end
    if not granted or op.verb == 'peek' then
      op.wait = 0
    end
  end
  for _, op in ipairs(ops) do
    report(op, reply)
  end
end

for first = 1, #KEYS, size do
  decide(first)
end
for key, s in pairs(states) do
  save(key, s)
end
return reply
