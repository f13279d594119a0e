-- How one operation goes: open, begin, verdict, charge, report; then save.
-- Twin of core/decide.go. ARGV holds seven values for each:
--   verb    take, soft (a take that stops no other), peek, refund or reset
--   cost    units
--   period, quota, extra
--   x       take, peek: the span that may be booked; refund: the instant of the take, or 0
--   y       concurrency: the lease's id, 16 bytes or none; else refund: the take's reset
local WIDTH = 7

-- No unreadable value stays in the way for longer than these milliseconds.
local QUARANTINE = 60000

local states = {}

-- read returns the state of the key, or nil if what is there cannot be one.
-- What cannot is left to expire: it may be somebody else's.
local function read(algorithm, key, l)
  local text = redis.pcall('GET', key)
  local s
  if type(text) ~= 'table' then
    s = algorithm.load(text, l)
  end
  if not s then
    -- A time to live of -1, which is none, becomes the longest.
    local left = redis.call('PTTL', key) % 2 ^ 52
    redis.call('PEXPIRE', key, string.format('%d', max(1, min(left, QUARANTINE))))
    return nil
  end
  s.exists, s.pending = text, 0
  return s
end

local function open(algorithm, i)
  local key, at = KEYS[i], i * WIDTH - WIDTH + ARGS
  local op = {
    algorithm = algorithm,
    key = key,
    verb = ARGV[at + 1],
    cost = tonumber(ARGV[at + 2]),
    limit = { period = tonumber(ARGV[at + 3]), quota = tonumber(ARGV[at + 4]), extra = tonumber(ARGV[at + 5]) },
    at = tonumber(ARGV[at + 6]),
    lease = ARGV[at + 7],
    wait = 0,
    retry = 0,
  }
  op.reset = tonumber(op.lease)
  op.state = states[key] or read(algorithm, key, op.limit)
  states[key] = op.state
  return op
end

-- begin settles the state and carries out what comes before the takes.
local function begin(op)
  local algorithm, s, l = op.algorithm, op.state, op.limit
  s.pending = 0
  if op.verb == 'reset' then
    s = algorithm.load(false, l)
    s.changed, s.exists, s.pending = true, op.state.exists, 0
    op.state, states[op.key] = s, s
  end
  s.changed = algorithm.settle(s, l) or s.changed
  if op.verb == 'refund' then
    algorithm.refund(s, l, op)
    algorithm.settle(s, l)
    s.changed = true
  end
end

-- verdict decides a take or peek on top of what earlier takes of the same step
-- are about to charge.
local function verdict(op)
  local s, l = op.state, op.limit
  op.allowed = true
  if op.cost == 0 or op.verb == 'refund' or op.verb == 'reset' then
    return
  end
  local n = op.cost + s.pending
  if n > l[op.algorithm.capacity] then
    op.allowed, op.retry = false, -1
    return
  end
  local wait = op.algorithm.delay(s, l, n, op.lease)
  if wait > op.at then
    op.allowed, op.retry = false, wait
    return
  end
  op.wait = wait
  if op.verb ~= 'peek' then
    s.pending = n
  end
end

local function charge(op)
  if op.verb == 'take' or op.verb == 'soft' then
    if op.allowed and op.cost ~= 0 then
      op.algorithm.take(op.state, op.limit, op.cost, op.lease)
      op.state.changed = true
    end
  end
end

-- report appends allowed, remaining, wait, retry and reset; retry is -1 for
-- never, and allowed is -1 for a state that cannot be read.
local function report(op, reply)
  local n = #reply
  local s = op.state
  local remaining, reset = op.algorithm.gauge(s, op.limit)
  s.reset, s.dump = reset, op.algorithm.dump
  reply[n + 1] = op.allowed and 1 or 0
  reply[n + 2] = remaining
  reply[n + 3] = op.wait
  reply[n + 4] = op.retry
  reply[n + 5] = reset
end

-- save writes a state that changed, or whose key has lost its time to live.
local function save(key, s)
  local changed = s.changed or s.exists and redis.call('PTTL', key) == -1
  if not changed then
    return
  end
  if s.reset == 0 then
    redis.call('DEL', key)
  else
    redis.call('SET', key, s.dump(s), 'PX', string.format('%d', ceil(s.reset / 1000) + keep))
  end
end
