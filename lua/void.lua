-- Twin of Void in core/state.go. A key that was reset while units were in use has a state that
-- begins with VOID, and then "at until;" and the state of its limit, empty if that is fresh.
-- Until the second instant, refunds of takes up to the first give nothing back.

-- @slow

local VOID = 'v' -- which begins the state of no algorithm

-- voids returns step for states that may have void takes, with one verb more: reset, which no
-- text fails. lasting is true if a refund names the units that it gives back, so that no take
-- has to be void. x and y are those of step: x is how far ahead a take or a peek may book, and
-- the instant of the take that a refund undoes or 0; y is passed on. The function returns one
-- value more if takes are void:
--
--   lasts  the span until the key is fresh, which may be longer than the reset
--
-- Each call creates these functions, and most calls need no more of them than the first lines.
-- A local of the script takes longer to capture than a global takes to look up.
local function voids(step, lasting)
  return function(text, verb, cost, pending, period, quota, extra, limit, x, y)
    if verb ~= 'reset' and (not text or string.sub(text, 1, 1) ~= VOID) then
      return step(text, verb, cost, pending, period, quota, extra, limit, x, y)
    end
    -- What is in the state: the instants, 0 if no take is void, and the state of the limit,
    -- which is nil if text is no state.
    local at, till, inner = 0, 0, text
    if text and string.sub(text, 1, 1) == VOID then
      local begin = nil
      at, till, begin = string.match(text, '^v(%d+) (%d+);()')
      at, till, inner = math.min(at or 0, NEVER), math.min(till or 0, NEVER), nil
      if begin then
        inner = string.sub(text, begin)
        if inner == '' then
          inner = false
        end
      end
    end
    if till <= now then
      at, till = 0, 0
    end

    local does, units, renewed = verb, cost, false
    if verb == 'reset' then
      local known, _, reset = nil, nil, 0
      if inner ~= nil then
        known, _, reset = step(inner, 'peek', 0, 0, period, quota, extra, limit, 0, '')
      end
      if known == nil and not BANS and string.sub(text, 1, 1) == STRUCK then
        error(NEEDS_BANS) -- nothing is written yet
      end
      if known ~= nil and reset ~= 0 and not lasting then
        at, till = now, math.max(till, now + reset)
      end
      inner, does, units, renewed = false, 'peek', 0, true
    elseif inner == nil then
      return nil
    elseif verb == 'refund' and x ~= 0 and x <= at and at <= now then
      does, units = 'peek', 0
    end

    local next, remaining, reset, wait, taken = step(inner, does, units, pending, period, quota, extra, limit, x, y)
    if renewed or verb == 'refund' and inner == false and next == false then
      next = '' -- a refund of a fresh key changes it if the takes that were void no longer are
    elseif next and at == now and (verb == 'debit' or verb == 'take' and wait <= x) then
      at = now - 1 -- units were taken at the instant of the reset, after it
    end
    if next == nil or till == 0 then
      return next, remaining, reset, wait, taken
    end
    return next and table.concat({ VOID, string.format('%d %d;', at, till), next }), remaining, reset, wait, taken, math.max(reset, till - now)
  end
end
