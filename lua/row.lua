-- Rows: steps that are alike, which short cuts decide with less ado.

-- singles carries out a row of steps of one operation, whose keys begin at k.
local function singles(k, steps, l)
  local limit, olds, texts, resets, reply = limits[l], olds, texts, resets, reply
  local quick, period, burst, name = limit.quick, limit.period, limit.extra, limit.text
  for i = k, k + steps - 1 do
    local next, remaining, reset = nil, nil, nil
    if quick then
      next, remaining, reset = quick(olds[i], 1, period, burst, name)
    end
    if next then
      texts[i], resets[i] = next, reset
      reply[size + 1], reply[size + 2] = remaining, reset * 4
      size = size + 2
    else
      plain(i, l)
    end
  end
end

-- shortly carries out a step of a row, whose keys follow k, by the short cuts of its
-- limits, and returns whether all of them lead somewhere.
local function shortly(at, k, own, width)
  local answered = size
  for i = 1, width do
    local remaining, reset = quickly(k + i, own[i], 1)
    if not remaining then
      undo(at, at + i * WIDTH - 1, answered)
      return false
    end
    reply[size + 1], reply[size + 2] = remaining, reset * 4
    size = size + 2
  end
  return true
end

-- row carries out the row at a byte and returns where the step after it begins.
local function row(at)
  local _, n2, n1, n, w2, w1, w, _, k2, k1, k = byte(program, at, at + WIDTH + 3)
  local steps, width, own = (n2 * 256 + n1) * 256 + n, (w2 * 256 + w1) * 256 + w, {}
  k = (k2 * 256 + k1) * 256 + k
  at = at + WIDTH
  for i = 1, width do
    local l2, l1, l = byte(program, at + i * WIDTH - 3, at + i * WIDTH - 1)
    own[i] = (l2 * 256 + l1) * 256 + l
  end
  if width == 1 then
    singles(k, steps, own[1])
    return at + steps * WIDTH
  end
  for i = 1, width do
    own[i] = limits[own[i]]
  end
  for _ = 1, steps do
    if not shortly(at, k - 1, own, width) then
      settle(at)
    end
    at, k = at + width * WIDTH, k + width
  end
  return at
end
