-- A script for wrk that makes its figures exact. Each thread stops at its last answer, before it
-- sends another request, so with as many connections as threads no request is under way when wrk
-- ends. The argument is how many requests each thread sends.

local threads = {}

function setup(thread)
  table.insert(threads, thread)
  thread:set("number", #threads)
end

function init(args)
  left, ok, refused = tonumber(args[1]), 0, 0
end

function response(status)
  if status == 200 then
    ok = ok + 1
  elseif status == 429 then
    refused = refused + 1
  end
  left = left - 1
  if left == 0 then
    wrk.thread:stop()
    io.write("thread " .. number .. " is done\n") -- one string, as the threads share the output
    io.flush()
  end
end

function done(summary)
  local ok, refused = 0, 0
  for _, thread in ipairs(threads) do
    ok, refused = ok + thread:get("ok"), refused + thread:get("refused")
  end
  local e = summary.errors
  io.write(string.format("requests=%d ok=%d refused=%d failed=%d\n",
    summary.requests, ok, refused, e.connect + e.read + e.write))
end
