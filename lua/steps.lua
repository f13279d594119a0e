-- Steps that are decided one after the other, each all or nothing. What they are is
-- the program that many.lua describes.
local verbs = { [0] = 'take', 'take', 'peek', 'refund', 'reset' }

-- The step that used a key last, with the state before it, by the key's place.
local users, texts0 = {}, {}

-- fetch reads the operation of the program at a byte, and the values it brings.
local function fetch(at)
  local does, k2, k1, k, l2, l1, l = byte(program, at, at + WIDTH - 1)
  k, l = (k2 * 256 + k1) * 256 + k, (l2 * 256 + l1) * 256 + l
  if does < 16 then
    return does, k, l, 1, 0, 0
  end
  value = value + 3
  return does - 16, k, l, tonumber(ARGV[value - 2]), tonumber(ARGV[value - 1]), ARGV[value]
end

-- known returns the state of a key now.
local function known(k)
  local text = texts[k]
  if text == nil then
    return olds[k]
  end
  return text
end

-- run carries out one operation by itself, and returns nil if its key cannot be
-- read.
local function run(k, l, verb, cost, pending, x, y)
  local text = known(k)
  if text == '' then
    quarantine(KEYS[k])
    return nil
  end
  if verb == 'reset' then
    texts[k], text = false, false
    verb, cost = 'peek', 0
  end
  local limit = limits[l]
  local next, remaining, reset, wait =
    steps[limit.letter](text, verb, cost, pending, limit.period, limit.quota, limit.extra, limit.text, x, y)
  if next == nil then
    quarantine(KEYS[k])
    return nil
  end
  if next then
    texts[k] = next ~= '' and next
  end
  resets[k] = reset
  return remaining, reset, wait
end

-- quickly carries out a take by the short cut of its algorithm, which grants it, or
-- returns nil if there is none or it leads nowhere.
local function quickly(k, limit, cost)
  if cost == 0 or not limit.quick then
    return nil
  end
  local next, remaining, reset = limit.quick(known(k), cost, limit.period, limit.extra, limit.text)
  if next then
    texts[k], resets[k] = next, reset
  end
  return remaining, reset
end

-- undo takes back what a step did up to a byte of the program.
local function undo(first, last, answered)
  for at = first, last, WIDTH do
    local _, k2, k1, k = byte(program, at, at + 3)
    k = (k2 * 256 + k1) * 256 + k
    texts[k] = texts0[k]
  end
  for i = answered + 1, size do
    reply[i] = nil
  end
  size = answered
end

-- hope carries out a step one operation after the other, which is right if
-- nothing stops it and no key is used twice, and returns where the next begins.
-- Otherwise it takes everything back and returns nil.
local function hope(first)
  local at, answered, more, code = first, size, true, 0
  while more do
    local does, k, l, cost, x, y = fetch(at)
    more = does >= 8
    does = more and does - 8 or does
    local verb, alone = verbs[does], first == at and not more
    if not alone then
      if users[k] == first then
        return undo(first, at, answered)
      end
      users[k], texts0[k] = first, texts[k]
    end
    local remaining, reset, wait = nil, nil, 0
    if verb == 'take' then
      remaining, reset = quickly(k, limits[l], cost)
    end
    if not remaining then
      remaining, reset, wait = run(k, l, verb, cost, 0, x, y)
    end
    size, code = answer(reply, size, verb, remaining, reset, wait, x)
    if not alone and (not remaining or code >= 2 and does == 0) then
      return undo(first, at, answered)
    end
    at = at + WIDTH
  end
  return at
end

-- judge decides an operation on top of what earlier takes of its step will
-- charge, and returns whether it lets the step go on.
local function judge(op, pending)
  local before = pending[op.k] or 0
  local cost = (op.verb == 'take' or op.verb == 'peek') and op.cost or 0
  op.remaining, op.reset, op.wait = run(op.k, op.l, 'peek', cost, before, op.x, op.y)
  if not op.remaining then
    return false
  elseif op.wait > op.x then
    return op.soft or op.verb == 'peek'
  elseif op.verb == 'take' then
    op.takes, pending[op.k] = true, before + cost
  end
  return true
end

-- decide carries out the operations of a step: what comes before the takes, then
-- the takes, if all of them are granted.
local function decide(ops)
  local granted, pending = true, {}
  for _, op in ipairs(ops) do
    if op.verb == 'refund' or op.verb == 'reset' then
      run(op.k, op.l, op.verb, op.cost, 0, op.x, op.y)
    end
  end
  for _, op in ipairs(ops) do
    if not judge(op, pending) then
      granted = false
    end
  end
  for _, op in ipairs(ops) do
    if op.takes and granted then
      run(op.k, op.l, 'take', op.cost, 0, op.x, op.y)
    elseif op.takes then
      op.wait = 0
    end
  end
  for _, op in ipairs(ops) do
    if granted then
      op.remaining, op.reset = run(op.k, op.l, 'peek', 0, 0, 0, '')
    end
    size = answer(reply, size, op.verb, op.remaining, op.reset, op.wait, op.x)
  end
end

-- careful decides a step and returns where the next begins.
local function careful(at)
  local ops, more = {}, true
  while more do
    local does, k, l, cost, x, y = fetch(at)
    more = does >= 8
    does = more and does - 8 or does
    ops[#ops + 1] = { k = k, l = l, verb = verbs[does], soft = does == 1, cost = cost, x = x, y = y }
    at = at + WIDTH
  end
  decide(ops)
  return at
end

-- plain carries out a take of 1 that is a step by itself, as most are.
local function plain(k, l)
  local remaining, reset = quickly(k, limits[l], 1)
  local wait = 0
  if not remaining then
    remaining, reset, wait = run(k, l, 'take', 1, 0, 0, 0)
  end
  if wait == 0 then
    reply[size + 1], reply[size + 2] = remaining, reset * 4
    size = size + 2
  else
    size = answer(reply, size, 'take', remaining, reset, wait, 0)
  end
end

-- settle carries out the step at a byte and returns where the next begins.
local function settle(at)
  local does, k2, k1, k, l2, l1, l = byte(program, at, at + WIDTH - 1)
  if does == 0 then
    plain((k2 * 256 + k1) * 256 + k, (l2 * 256 + l1) * 256 + l)
    return at + WIDTH
  end
  local values = value
  local next = hope(at)
  if not next then
    value = values
    next = careful(at)
  end
  return next
end
