-- The driver of steps of several operations, each step all or nothing.
--
-- ARGV: the instant, the number of operations in a step, the letter of the
-- algorithm of each of them, then seven values for every operation: the verb, the
-- cost, the three numbers of the limit, x and y. Reply: the instant, then for
-- every operation what one.lua replies.
local reply, size = { now }, tonumber(ARGV[2])
local WIDTH = 7

-- What is known of the keys: the text, or false; what has to be written; and the
-- span until they are as good as new.
local texts, writes, resets = {}, {}, {}

local function read(key)
  local text = redis.pcall('GET', key)
  if type(text) == 'table' then
    quarantine(key)
    return nil
  end
  return text
end

-- run has an algorithm carry out an operation and keeps what changed. It returns
-- the wait, or nil for a text that is no state.
local function run(op, verb, cost, pending)
  local key = op.key
  local next, remaining, reset, wait = op.step(texts[key], verb, cost, pending, op.a, op.b, op.c, op.x, op.y)
  if next == nil then
    quarantine(key)
    texts[key] = nil
    return nil
  end
  if next then
    texts[key], writes[key] = next ~= '' and next, next
  end
  op.remaining, op.reset, resets[key] = remaining, reset, reset
  return wait
end

local function open(i, letter)
  local at = 2 + size + (i - 1) * WIDTH
  local op = {
    key = KEYS[i],
    step = steps[letter],
    verb = ARGV[at + 1],
    cost = tonumber(ARGV[at + 2]),
    a = ARGV[at + 3],
    b = ARGV[at + 4],
    c = ARGV[at + 5],
    x = tonumber(ARGV[at + 6]),
    y = ARGV[at + 7],
    takes = false,
    allowed = 1,
    remaining = 0,
    wait = 0,
    retry = 0,
    reset = 0,
  }
  op.takes = op.verb == 'take' or op.verb == 'soft'
  if texts[op.key] == nil then
    texts[op.key] = read(op.key)
  end
  return op
end

-- before carries out what comes before the takes.
local function before(op)
  if op.verb == 'refund' then
    run(op, 'refund', op.cost, 0)
  elseif op.verb == 'reset' and texts[op.key] then
    texts[op.key], writes[op.key] = false, ''
  end
end

-- verdict decides on top of what earlier takes of the step will charge.
local function verdict(op, pending)
  local cost = (op.takes or op.verb == 'peek') and op.cost or 0
  local before = pending[op.key] or 0
  local wait = texts[op.key] ~= nil and run(op, 'peek', cost, before)
  if not wait then
    op.allowed = -1
  elseif cost == 0 then
    op.allowed = 1
  elseif wait > op.x then
    op.allowed, op.retry = 0, wait == NEVER and -1 or wait
  elseif op.takes then
    op.wait, pending[op.key] = wait, before + cost
  end
end

-- decide carries out the operations of one step.
local function decide(ops)
  local granted, pending, uses = true, {}, {}
  for _, op in ipairs(ops) do
    before(op)
    uses[op.key] = (uses[op.key] or 0) + 1
  end
  for _, op in ipairs(ops) do
    verdict(op, pending)
    granted = granted and (op.allowed == 1 or op.allowed == 0 and op.verb ~= 'take')
  end
  for _, op in ipairs(ops) do
    if not granted then
      op.wait = 0
    elseif op.takes and op.allowed == 1 then
      run(op, 'take', op.cost, 0)
    end
  end
  for _, op in ipairs(ops) do
    if uses[op.key] ~= 1 and op.allowed ~= -1 then
      run(op, 'peek', 0, 0)
    end
  end
end

for first = 1, #KEYS, size do
  local ops = {}
  for i = 1, size do
    ops[i] = open(first + i - 1, ARGV[2 + i])
  end
  decide(ops)
  for _, op in ipairs(ops) do
    local n = #reply
    reply[n + 1] = op.allowed
    reply[n + 2] = op.remaining
    reply[n + 3] = op.wait
    reply[n + 4] = op.retry
    reply[n + 5] = op.reset
  end
end
for key, text in pairs(texts) do
  save(key, text, writes[key] or false, resets[key])
end
return reply
