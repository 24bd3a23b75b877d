-- Limits of a run. Once it is told to abort, nothing of the script runs on: every function that could catch the error lets it
-- through, and the handlers of the script are not called.

local host = ...
local python = host.python

local error = error
local sethook = debug.sethook
local clock = os.clock

local ABORT = {}
local PERIOD, COROUTINE_PERIOD = 1000, 250
local aborting = false
local running = false
local instructions_left, instructions_max, seconds_max = 0, 0, 0
local started, last -- processor time at the second and at the last count of a run
local is_short = true -- the run has not been counted yet: most end so, and the clock is dear
local SLOW_SECONDS, SLOW_PERIOD = 0.02, 10 -- when 1000 instructions take so long, every tenth is counted
local time
local abort_place -- where the script was when it was told to stop

local function abort()
  aborting = true
  error(ABORT, 0)
end

local function spend(instructions)
  if not running then
    return 0
  end
  instructions_left = instructions_left - instructions
  if instructions_left < 0 then
    python.limit("instructions")
    abort()
  end
  if is_short then
    is_short = false
    return 0
  end
  local now = clock()
  if not started then
    started, last = now, now
  elseif now - started > seconds_max then
    python.limit("seconds")
    abort()
  end
  local taken = now - last
  last = now
  return taken
end

local count, count_slowly
local is_slow = true -- the hook is to be set anew

function count()
  if spend(PERIOD) > SLOW_SECONDS then
    is_slow = true
    sethook(count_slowly, "", SLOW_PERIOD)
  end
end

function count_slowly()
  if spend(SLOW_PERIOD) < SLOW_SECONDS / 100 then
    is_slow = false
    sethook(count, "", PERIOD)
  end
end

local function count_in_coroutine()
  spend(COROUTINE_PERIOD)
end

-- The limits of a run hold in its coroutines too; each resumption costs as much as one count.
function host.count_coroutine(thread)
  sethook(thread, count_in_coroutine, "", COROUTINE_PERIOD)
end

function host.spend_resumption()
  spend(COROUTINE_PERIOD)
end

function host.is_aborting()
  return aborting
end

-- For all that catches errors: let the one through that ends the script.
function host.check_abort()
  if aborting then
    error(ABORT, 0)
  end
end

-- Stop the script from a host function; the final error then names the place.
function host.abort()
  abort_place = host.origin()
  abort()
end

function host.abort_place()
  return abort_place
end

function host.set_limits(instructions, seconds)
  instructions_max, seconds_max = instructions, seconds
end

-- The time of the shard in microseconds, while nothing but the keyspace concerns the calls of a run; else nil.
function host.time()
  return time
end

-- What encloses a run of a script: `begin` before it, `ended` after. `aborted` is for the handler around all that a script
-- does: if the script is told to abort, what runs from there on is trusted code.
function host.begin(now)
  time = now
  instructions_left, started, is_short = instructions_max, nil, true
  aborting, abort_place = false, nil
  running = true
  if is_slow then
    is_slow = false
    sethook(count, "", PERIOD)
  end
end

function host.aborted()
  if aborting then
    running = false
    return ABORT
  end
end

function host.ended()
  running = false
  return aborting
end
