-- Rows: steps that are alike, which short cuts decide with less ado.

-- The row that is under way: how many steps are left of it, the limits of each, how
-- many these are, and the place before that of the next key.
local left, own, width, before = 0, {}, 0, 0

-- open begins the row at a byte of the program and returns where its steps begin.
local function open(at)
  local _, n2, n1, n, w2, w1, w, _, k2, k1, k = byte(program, at, at + WIDTH + 3)
  left, width = (n2 * 256 + n1) * 256 + n, (w2 * 256 + w1) * 256 + w
  before = (k2 * 256 + k1) * 256 + k - 1
  for i = 1, width do
    local l2, l1, l = byte(program, at + (i + 1) * WIDTH - 3, at + (i + 1) * WIDTH - 1)
    own[i] = limits[(l2 * 256 + l1) * 256 + l]
  end
  return at + WIDTH
end

-- singles decides steps of one operation, until the short cut leads nowhere, and
-- returns how many.
local function singles(limit)
  local olds, texts, resets, reply, n = olds, texts, resets, reply, size
  local quick, period, burst, name = limit.quick, limit.period, limit.extra, limit.text
  for k = before + 1, before + left do
    local next, remaining, reset = quick(olds[k], 1, period, burst, name)
    if not next then
      size = n
      return k - before - 1
    end
    texts[k], resets[k] = next, reset
    reply[n + 1], reply[n + 2] = remaining, reset * 4
    n = n + 2
  end
  size = n
  return left
end

-- together decides a step whose keys follow the k-th, and returns whether all short
-- cuts lead somewhere. If not, the step will put more into the reply than this did.
local function together(k)
  local n = size
  for i = 1, width do
    local limit = own[i]
    local next, remaining, reset =
      limit.quick(olds[k + i], 1, limit.period, limit.extra, limit.text)
    if not next then
      for j = 1, i - 1 do
        texts[k + j] = nil
      end
      return false
    end
    texts[k + i], resets[k + i] = next, reset
    reply[n + 1], reply[n + 2] = remaining, reset * 4
    n = n + 2
  end
  size = n
  return true
end

-- several is singles for steps of several operations.
local function several()
  for steps = 0, left - 1 do
    if not together(before + steps * width) then
      return steps
    end
  end
  return left
end

-- shortly decides the steps of rows from a byte of the program on, and returns
-- where short cuts lead nowhere, or where no row is.
local function shortly(at)
  repeat
    if left == 0 then
      if byte(program, at) ~= ROW then
        return at
      end
      at = open(at)
    end
    local steps = nil
    if width == 1 then
      steps = singles(own[1])
    else
      steps = several()
    end
    left, before = left - steps, before + steps * width
    at = at + steps * width * WIDTH
  until left ~= 0
  return at
end

-- Nearly all calls end here, before anything is defined that they do not need: in
-- rows, every key is changed.
local at = shortly(1)
if at == #program + 1 then
  for k = 1, #KEYS do
    write(KEYS[k], texts[k], resets[k])
  end
  return reply
end
