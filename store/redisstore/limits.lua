-- Notes the limits under which rules count, and lists the other limits in use.
-- KEYS     for each rule a string of lines: an instant in milliseconds and a limit
-- ARGV[1]  milliseconds since the epoch, or '' for the server's time
-- ARGV[2]  milliseconds for which a limit is in use after it was noted
-- ARGV[3]  and so on: the limit of each rule
-- Reply    for each rule a string of lines: how many milliseconds ago another limit was
--          noted, and the limit
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local reply = {}
for i = 1, #KEYS do
  local mine = ARGV[i + 2]
  local kept, others = {string.format('%d %s', now, mine)}, {}
  for at, limit in string.gmatch(redis.call('GET', KEYS[i]) or '', '(%d+) ([^\n]+)') do
    local age = now - tonumber(at)
    if limit ~= mine and age < tonumber(ARGV[2]) and #kept < 16 then
      kept[#kept + 1] = string.format('%s %s', at, limit)
      others[#others + 1] = string.format('%d %s', age, limit)
    end
  end
  redis.call('SET', KEYS[i], table.concat(kept, '\n'), 'PX', ARGV[2])
  reply[i] = table.concat(others, '\n')
end
return reply
