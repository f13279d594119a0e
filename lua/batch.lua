-- The driver of many steps, which are carried out one after the other, each all or
-- nothing.
--
-- ARGV: the instant; the program; the number of limits and, for each, the letter of its
-- algorithm, followed by the ban if there is one, and its text; and the values of
-- operations. Reply: the instant, then the
-- decision on every operation, see reply.lua.
--
-- An operation is seven bytes of the program: the opcode, and the places of its key and
-- its limit in three bytes each. The opcode is one of TAKE to REVOKE, plus MORE and
-- VALUES where they apply. Without VALUES the cost, x and y are 1, 0 and 0.
--
-- A row may precede steps that are all alike: ROW, the number of steps in three bytes,
-- and the number of operations of each step in three bytes. All operations of a row
-- take 1. Each step has the limits of the first step, and all of these have a quick
-- function. The keys of the operations follow each other and are used here for the
-- first time.
--
-- quicks and steps are the functions of the algorithms by letter.
local TAKE = 0
local TAKE_SOFT = 1 -- a refusal does not undo the step
local PEEK = 2
local REFUND = 3
local RESET = 4
local UPTO = 5 -- a take of as many units as fit, at most the cost
local UPTO_SOFT = 6
local DEBIT = 7
local LIFT = 8
local IMPOSE = 9
local GRANT = 10
local REVOKE = 11
local MORE = 16 -- the next operation is of the same step
local VALUES = 32 -- the operation has its cost, x and y in ARGV
local ROW = 64
local WIDTH = 7 -- bytes of an operation
local MAX_READ = 100 -- keys read by one command

local byte, program, value = string.byte, ARGV[2], 3
local reply, size = { now }, 1

-- The keys by their place: the state that was read, false if there is none, or '' if it
-- is unreadable; the current state, once it may differ; and the span until the key is
-- fresh.
local before, after, resets = {}, {}, {}

-- The limits by their place.
local limits = {}
for i = 1, tonumber(ARGV[3]) do
  local text = ARGV[value + 2]
  local a, b, c = match(text, '^(%d+) (%d+) (%d+)$')
  local letter, ban = ARGV[value + 1], ''
  if #letter ~= 1 then
    ban, letter = sub(letter, 2), sub(letter, 1, 1)
  end
  limits[i] = { letter = letter, ban = ban, quick = b == '1' and quicks[letter],
    text = text, period = a * 1, quota = b * 1, extra = c * 1 }
  value = value + 2
end

-- One command for many keys takes less time than one for each. MGET returns false for a
-- key of another type, which EXISTS counts.
for first = 1, #KEYS, MAX_READ do
  local last = min(first + MAX_READ - 1, #KEYS)
  local read, strings = redis.call('MGET', unpack(KEYS, first, last)), 0
  for k = first, last do
    before[k] = read[k - first + 1]
    if before[k] then
      strings = strings + 1
    end
  end
  if strings ~= last - first + 1 and redis.call('EXISTS', unpack(KEYS, first, last)) ~= strings then
    for k = first, last do
      local key = KEYS[k]
      if not before[k] and type(redis.pcall('GET', key)) == 'table' then
        before[k] = ''
      end
    end
  end
end

-- The current row: how many of its steps are left, the limits of each step, their
-- number, and the number of keys that precede those of the next step.
local left, row_limits, width, offset = 0, {}, 0, 0

-- open_row reads the row at a byte of the program and returns where its steps begin.
local function open_row(at)
  local _, n2, n1, n, w2, w1, w, _, k2, k1, k = byte(program, at, at + WIDTH + 3)
  left, width = (n2 * 256 + n1) * 256 + n, (w2 * 256 + w1) * 256 + w
  offset = (k2 * 256 + k1) * 256 + k - 1
  for i = 1, width do
    local l2, l1, l = byte(program, at + (i + 1) * WIDTH - 3, at + (i + 1) * WIDTH - 1)
    row_limits[i] = limits[(l2 * 256 + l1) * 256 + l]
  end
  return at + WIDTH
end

-- row_single decides steps of one operation until the quick function returns nil.
-- It returns the number of steps.
local function row_single(limit)
  local before, after, resets, reply, n = before, after, resets, reply, size
  local quick, period, burst, name = limit.quick, limit.period, limit.extra, limit.text
  for k = offset + 1, offset + left do
    local next, remaining, reset = quick(before[k], 1, period, burst, name)
    if not next then
      size = n
      return k - offset - 1
    end
    after[k], resets[k] = next, reset
    reply[n + 1], reply[n + 2] = remaining, reset * 4
    n = n + 2
  end
  size = n
  return left
end

-- row_step decides one step, whose keys follow the k-th. It reports whether every quick
-- function decided. If not, the step is decided again in full, and the new decisions
-- overwrite at least the part of the reply that was written here.
local function row_step(k)
  local n = size
  for i = 1, width do
    local limit = row_limits[i]
    local next, remaining, reset =
      limit.quick(before[k + i], 1, limit.period, limit.extra, limit.text)
    if not next then
      for j = 1, i - 1 do
        after[k + j] = nil
      end
      return false
    end
    after[k + i], resets[k + i] = next, reset
    reply[n + 1], reply[n + 2] = remaining, reset * 4
    n = n + 2
  end
  size = n
  return true
end

-- row_several is row_single for steps of several operations.
local function row_several()
  for steps = 0, left - 1 do
    if not row_step(offset + steps * width) then
      return steps
    end
  end
  return left
end

-- run_rows decides the steps of rows from a byte of the program on. It returns the byte
-- of the first step that is in no row or that a quick function did not decide.
local function run_rows(at)
  repeat
    if left == 0 then
      if byte(program, at) ~= ROW then
        return at
      end
      at = open_row(at)
    end
    local steps = nil
    if width == 1 then
      steps = row_single(row_limits[1])
    else
      steps = row_several()
    end
    left, offset = left - steps, offset + steps * width
    at = at + steps * width * WIDTH
  until left ~= 0
  return at
end

-- Most calls end here. In rows, every key is changed.
local at = run_rows(1)
if at == #program + 1 then
  for k = 1, #KEYS do
    write(KEYS[k], after[k], resets[k])
  end
  return reply
end

-- @slow

-- The verbs by opcode, from TAKE to REVOKE.
local verbs = { [0] = 'take', 'take', 'peek', 'refund', 'reset', 'take', 'take', 'debit', 'lift', 'impose', 'grant',
  'revoke' }

-- The opcodes of takes that share the number of their units.
local shared = { [UPTO] = true, [UPTO_SOFT] = true }

-- The byte of the step that used a key last, and the state and the reset before that
-- step, by the key's place.
local users, saved, saved_resets = {}, {}, {}

-- read_op reads the operation at a byte of the program, and its values.
local function read_op(at)
  local opcode, k2, k1, k, l2, l1, l = byte(program, at, at + WIDTH - 1)
  k, l = (k2 * 256 + k1) * 256 + k, (l2 * 256 + l1) * 256 + l
  if opcode < VALUES then
    return opcode, k, l, 1, 0, 0
  end
  value = value + 3
  return opcode - VALUES, k, l, tonumber(ARGV[value - 2]), tonumber(ARGV[value - 1]), ARGV[value]
end

-- state returns the current state of a key.
local function state(k)
  local text = after[k]
  if text == nil then
    return before[k]
  end
  return text
end

-- run_op carries out one operation by itself. It returns nil if its key is unreadable or of
-- a later format, and in the second case also what answer says of that. The last value is the loan
-- of a key with credit. x and y are passed on to
-- the step, whose contract in prelude.lua says what they are under each verb.
local function run_op(k, l, verb, cost, pending, x, y)
  local text = state(k)
  local mark, number = byte(text or '', 1, 2)
  if mark == LATER and (number or 0) > FORMAT then
    return nil, OF_FORMAT - number
  elseif mark == LATER and number == FORMAT and not BANS then
    error(NEEDS_BANS) -- nothing is written yet
  end
  if text == '' then
    quarantine(KEYS[k])
    return nil
  end
  local limit = limits[l]
  local next, remaining, reset, wait, taken, lasts, loan =
    steps[limit.letter](text, verb, cost, pending, limit.period, limit.quota, limit.extra, limit.text, x, y, limit.ban)
  if next == nil then
    quarantine(KEYS[k])
    return nil
  end
  if next then
    after[k] = next ~= '' and next
  end
  if lasts and (not next or sub(next, 1, 1) ~= VOID) then
    resets[k] = max(lasts, resets[k] or 0) -- a strike leaves the units, which may be under another limit
  elseif next or not resets[k] then -- else this reset may be that of another limit
    resets[k] = lasts or reset
  end
  return remaining, reset, wait, taken, loan
end

-- run_quick carries out a take by the quick function of its algorithm. It returns nil
-- if there is no such function or it does not decide.
local function run_quick(k, limit, cost)
  if cost == 0 or not limit.quick then
    return nil
  end
  local next, remaining, reset = limit.quick(state(k), cost, limit.period, limit.extra, limit.text)
  if next then
    after[k], resets[k] = next, reset
  end
  return remaining, reset
end

-- undo restores the states from before the operations between two bytes of the
-- program, and removes their part of the reply.
local function undo(first, last, answered)
  for at = first, last, WIDTH do
    local _, k2, k1, k = byte(program, at, at + 3)
    k = (k2 * 256 + k1) * 256 + k
    after[k], resets[k] = saved[k], saved_resets[k]
  end
  for i = answered + 1, size do
    reply[i] = nil
  end
  size = answered
end

-- run_optimistic carries out a step one operation after the other, which is correct if
-- none is refused, no key is used twice and no take is of as many units as fit. It
-- returns where the next step begins, or undoes the step and returns nil.
local function run_optimistic(first)
  local at, answered, more, code = first, size, true, ALLOWED
  while more do
    local opcode, k, l, cost, x, y = read_op(at)
    more = opcode >= MORE
    opcode = more and opcode - MORE or opcode
    local verb, alone = verbs[opcode], first == at and not more
    if not alone then
      if users[k] == first then
        return undo(first, at, answered)
      end
      users[k], saved[k], saved_resets[k] = first, after[k], resets[k]
    end
    if shared[opcode] then
      return not alone and undo(first, at, answered) or nil
    end
    local remaining, reset, wait, taken, loan = nil, nil, 0, nil, nil
    if verb == 'take' then
      remaining, reset = run_quick(k, limits[l], cost)
    end
    if not remaining then
      remaining, reset, wait, taken, loan = run_op(k, l, verb, cost, 0, x, y)
    end
    size, code = answer(reply, size, verb, remaining, reset, wait, x, loan)
    if opcode == DEBIT and remaining then
      size = size + 1
      reply[size] = taken
    end
    if not alone and (not remaining or code >= REFUSED and opcode == TAKE) then
      return undo(first, at, answered)
    end
    at = at + WIDTH
  end
  return at
end

-- share_units lowers the cost of the takes of as many units as fit, which is the same
-- for all, to the number that every hard one of them has left, and to at least 1
-- unless the cost is 0. A hard one that has none left then refuses the step.
local function share_units(ops)
  local n = nil
  for _, op in ipairs(ops) do
    n = op.upto and (n or op.cost) or n
    if op.upto and not op.soft then
      n = max(min(n, 1), min(n, run_op(op.k, op.l, 'peek', 0, 0, 0, '') or 1))
    end
  end
  for _, op in ipairs(ops) do
    op.cost = op.upto and n or op.cost
  end
end

-- check_op decides an operation on top of the units that earlier takes of its step will
-- charge. It reports whether the step may go on.
local function check_op(op, pending)
  local earlier = pending[op.k] or 0
  local cost = (op.verb == 'take' or op.verb == 'peek') and op.cost or 0
  local _ = nil
  op.remaining, op.reset, op.wait, _, op.loan = run_op(op.k, op.l, 'peek', cost, earlier, op.x, op.early and '' or op.y)
  if op.loan and op.loan.refused then
    op.x = 0
  end
  if not op.remaining then
    return false
  elseif op.wait > op.x or op.wait ~= 0 and op.remaining == BANNED then
    op.refused = op.verb == 'take' and op.wait ~= NEVER
    return op.soft or op.verb == 'peek'
  elseif op.verb == 'take' then
    op.takes, pending[op.k] = true, earlier + cost
  end
  return true
end

-- strike_refused counts the refusals of a step under bans, and tells its operations which of
-- their keys are banned then.
local strike_refused = BANS and function(ops)
  for _, op in ipairs(ops) do
    if op.refused and limits[op.l].ban ~= '' then
      run_op(op.k, op.l, 'strike', 0, 0, 0, '')
    end
  end
  for _, op in ipairs(ops) do
    local ban = limits[op.l].ban
    local left = ban ~= '' and op.remaining and banned_for(state(op.k), ban) or 0
    if left ~= 0 then
      op.remaining = BANNED
      if op.cost ~= 0 and (op.verb == 'take' or op.verb == 'peek') then
        op.wait = max(op.wait, left)
      end
    end
  end
end

-- decide carries out the operations of a step: first all but takes and peeks, then the
-- takes, if all of them are granted. A step with a key that cannot be read changes no other.
local function decide(ops)
  local granted, readable, pending = true, true, {}
  for _, op in ipairs(ops) do
    if op.verb ~= 'take' and op.verb ~= 'peek' then
      op.was, op.lasted = after[op.k], resets[op.k]
      local _, _, wait, taken = run_op(op.k, op.l, op.verb, op.cost, 0, op.x, op.y)
      op.early, op.taken, op.never = true, taken, wait == NEVER -- a grant that cannot be
    end
  end
  share_units(ops)
  for _, op in ipairs(ops) do
    if not check_op(op, pending) then
      granted, readable = false, readable and op.remaining
    end
  end
  for i = readable and 0 or #ops, 1, -1 do
    local op = ops[i]
    if op.early then
      after[op.k], resets[op.k] = op.was, op.lasted
    end
  end
  for _, op in ipairs(ops) do
    if op.takes and granted then
      local _, _, _, _, loan = run_op(op.k, op.l, 'take', op.cost, 0, op.x, op.y)
      op.drawn = loan
    end
  end
  if BANS and readable and not granted then
    strike_refused(ops)
  end
  for _, op in ipairs(ops) do
    if op.takes and not granted and op.remaining ~= BANNED then
      op.wait = 0
    end
    -- A later take or peek may have moved the window of a calendar, which what came before cannot.
    if granted or op.early then
      local _ = nil
      op.remaining, op.reset, _, _, op.loan = run_op(op.k, op.l, 'peek', 0, 0, 0, '')
    end
    if op.drawn then
      op.loan = { op.loan and op.loan[1] or 0, op.drawn[2], op.drawn[3] }
    end
    op.wait = op.never and NEVER or op.wait
    size = answer(reply, size, op.verb, op.remaining, op.reset, op.wait, op.x, op.loan)
    if op.upto and op.remaining then
      size = size + 1
      reply[size] = granted and op.takes and op.cost or 0
    elseif op.verb == 'debit' and op.remaining then
      size = size + 1
      reply[size] = op.taken
    end
  end
end

-- run_two_phase reads a step, decides it, and returns where the next begins.
local function run_two_phase(at)
  local ops, more = {}, true
  while more do
    local opcode, k, l, cost, x, y = read_op(at)
    more = opcode >= MORE
    opcode = more and opcode - MORE or opcode
    ops[#ops + 1] = { k = k, l = l, verb = verbs[opcode], cost = cost, x = x, y = y,
      soft = opcode == TAKE_SOFT or opcode == UPTO_SOFT, upto = shared[opcode] }
    at = at + WIDTH
  end
  decide(ops)
  return at
end

-- run_take carries out a step of one take of 1, the most frequent kind.
local function run_take(k, l)
  local remaining, reset = run_quick(k, limits[l], 1)
  local wait, _, loan = 0, nil, nil
  if not remaining then
    remaining, reset, wait, _, loan = run_op(k, l, 'take', 1, 0, 0, 0)
  end
  if wait == 0 and not loan then
    reply[size + 1], reply[size + 2] = remaining, reset * 4
    size = size + 2
  else
    size = answer(reply, size, 'take', remaining, reset, wait, 0, loan)
  end
end

-- run_step carries out the step at a byte and returns where the next begins.
local function run_step(at)
  local opcode, k2, k1, k, l2, l1, l = byte(program, at, at + WIDTH - 1)
  if opcode == TAKE then
    run_take((k2 * 256 + k1) * 256 + k, (l2 * 256 + l1) * 256 + l)
    return at + WIDTH
  end
  local values = value
  local next = run_optimistic(at)
  if not next then
    value = values
    next = run_two_phase(at)
  end
  return next
end

while at ~= #program + 1 do
  at = run_step(at)
  if left ~= 0 then
    left, offset = left - 1, offset + width
  end
  at = run_rows(at)
end
for k = 1, #KEYS do
  local text = state(k)
  if text ~= before[k] then
    save(KEYS[k], before[k], text or '', resets[k])
  elseif resets[k] then -- else nothing is known of the key
    save(KEYS[k], text, false, resets[k])
  end
end
return reply
