-- The driver of a step of one operation. ARGV: the instant, then the operation.
local reply = { now }
local op = open(algorithm, 1)
if op.state then
  begin(op)
  verdict(op)
  charge(op)
  report(op, reply)
  save(op.key, op.state)
  if op.verb == 'peek' then
    reply[4] = 0
  end
else
  reply = { now, -1, 0, 0, 0, 0 }
end
return reply
