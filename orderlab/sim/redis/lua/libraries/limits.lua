-- Limits of a run. Once it is told to abort, nothing of the script runs on: every function that could catch the error lets it
-- through, and the handlers of the script are not called.
--
-- The clock is dear and most runs are short, so both limits are looked at after every thousand instructions only. That is often
-- enough while one instruction, or one call of the library, takes no longer than what a run holds in memory allows:
-- comparing two strings of 60 MB is one instruction. So a sentinel that the collector finds in each of its cycles shortens the
-- period as memory fills, and what a call of the library copies counts as instructions. Where there is machine code the hook is one of C,
-- which counts what single instructions do as well (hook.h).

local host = ...
local python = host.python

local error, getmetatable, newproxy = error, getmetatable, newproxy
local getinfo, sethook = debug.getinfo, debug.sethook
local clock, collectgarbage, running_coroutine = os.clock, collectgarbage, coroutine.running
local floor, max, min = math.floor, math.max, math.min

local ABORT = {}
local PERIOD, COROUTINE_PERIOD = 1000, 250
local SLOW_SECONDS, SLOW_PERIOD = 0.02, 10 -- when one period takes so long, every tenth instruction is counted
local CALM_KILOBYTES = 4096 -- with more in memory the period shortens in proportion
local BYTES_FREE, BYTES_PER_INSTRUCTION = 65536, 64
local COLLECTED_FREE, COLLECTED_PER_INSTRUCTION = 4 * CALM_KILOBYTES, 256 -- kilobytes, and bytes
local ALLOCATED_PER_INSTRUCTION = 128 -- bytes: each cycle follows about as many new ones as are held
local READ_FREE, INSTRUCTIONS_PER_READ = 1000, 10
local CHARGED = 1000000 -- instructions after which a run says that it has taken so many
local aborting = false
local running = false
local instructions_left, instructions_max, seconds_max, memory_max, arguments_max = 0, 0, 0, 0, 0
local charge_at = 0 -- what is left when the next million has been taken
local started, last -- processor time at the second and at the last count of a run
local is_short = true -- the run has not been counted yet: most end so
local period = 0 -- of the hook of the main thread; 0: it is to be set anew
local calm_period = PERIOD
local time
local EACH, SPARSE = 10000, 97 -- measured instructions of a run that are counted one by one; then one of so many
local measured, left_each -- instructions of scripts since `host.measure`; nil: they are not measured
local abort_place -- where the script was when it was told to stop

local function abort()
  aborting = true
  error(ABORT, 0)
end

local look_at_clock

local function spend(instructions)
  if not running then
    return 0
  end
  instructions_left = instructions_left - instructions
  while instructions_left <= charge_at and charge_at >= 0 do
    charge_at = charge_at - CHARGED
    local _, stop = python.charge()
    if stop then
      host.abort()
    end
  end
  if instructions_left < 0 then
    python.limit("instructions")
    abort()
  end
  return look_at_clock()
end

-- Processor time since the last look.
function look_at_clock()
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

local count_period
local begin_count, set_count_period, make_finalizer

local function set_period(instructions)
  if period ~= instructions and not measured then
    period = instructions
    if set_count_period then
      set_count_period(instructions)
    else
      sethook(count_period, "", instructions)
    end
  end
end

local function count(steps)
  local taken = steps and spend(steps) or running and look_at_clock() or 0
  if taken > SLOW_SECONDS then
    set_period(SLOW_PERIOD)
  elseif period == SLOW_PERIOD and taken < SLOW_SECONDS / 100 then
    set_period(calm_period)
  end
end

function count_period()
  count(period)
end

-- The script's own instructions alone: those of libraries are C on a server, and here Lua where there is no machine code.
local measure_sparsely
function measure_sparsely()
  if getinfo(2, "S").source ~= "=host" then
    measured = measured + SPARSE
  end
  spend(SPARSE)
  sethook(measure_sparsely, "", SPARSE) -- last: what this function takes has been counted as well
end

local function measure_each()
  if getinfo(2, "S").source ~= "=host" then
    measured = measured + 1
    left_each = left_each - 1
  end
  spend(1)
  if left_each <= 0 then
    sethook(measure_sparsely, "", SPARSE)
  end
end

-- Begin to count what scripts take, or end it with nil; the number so far.
function host.measure(begin)
  measured = begin
  period = 0
end

function host.measured()
  return measured
end

local function count_in_coroutine()
  spend(COROUTINE_PERIOD)
end

-- The limits of a run hold in its coroutines too; each resumption costs as much as one count. `enter_thread` is told where the script goes on.
function host.count_coroutine(thread)
  if measured then
    sethook(thread, measure_each, "", 1)
  elseif not set_count_period then
    sethook(thread, count_in_coroutine, "", COROUTINE_PERIOD)
  end
end

function host.spend_resumption()
  spend(COROUTINE_PERIOD)
end

host.enter_thread = function() end
if host.open_count then
  begin_count, set_count_period, host.enter_thread, make_finalizer = host.open_count(count)
end

-- The sentinel. A finalizer that finds no memory for the next one leaves that to the next run.
local mould = newproxy(true)
local has_sentinel = false

local function shorten_period()
  calm_period = max(SLOW_PERIOD, min(PERIOD, floor(PERIOD * CALM_KILOBYTES / collectgarbage("count"))))
  if calm_period == PERIOD then
    return
  end
  is_short = false
  if not started then
    started = clock()
    last = started
  end
  if measured then
    return
  elseif set_count_period then
    set_period(min(period, calm_period))
  elseif running_coroutine() then -- counted as if it were the whole period
    sethook(count_in_coroutine, "", min(COROUTINE_PERIOD, calm_period))
  elseif calm_period < period then
    set_period(calm_period)
  end
end

local function finalize(proxy, added)
  if proxy == mould then -- the runtime ends
    return
  end
  has_sentinel = false
  if running then -- each cycle follows as many new bytes as there were before
    local held = added or collectgarbage("count")
    local cycle = max(0, held - COLLECTED_FREE) * (1024 / COLLECTED_PER_INSTRUCTION)
    instructions_left = instructions_left - cycle
    if not added then -- where instructions are not looked at
      instructions_left = instructions_left - held * (1024 / ALLOCATED_PER_INSTRUCTION)
    end
    shorten_period()
  end
  newproxy(mould)
  has_sentinel = true
end
getmetatable(mould).__gc = make_finalizer and make_finalizer(finalize) or finalize

-- What a call of the library is about to copy, in bytes, counts as instructions.
function host.spend_bytes(bytes)
  if bytes > BYTES_FREE then
    spend(bytes / BYTES_PER_INSTRUCTION)
  end
end

-- Raises at once what the allocator would raise after much work.
function host.check_memory(bytes)
  if bytes > memory_max then
    error("not enough memory", 0)
  end
end

-- Ends a run that would be ended anyway once all these bytes were copied into Python: one string may be many arguments.
function host.check_arguments(bytes)
  if bytes > arguments_max then
    python.limit("bytes handed to redis.call")
    host.abort()
  end
end

-- Bytes that Python reads one by one, or items that are sorted.
function host.spend_reading(bytes)
  if bytes > READ_FREE then
    spend(bytes * INSTRUCTIONS_PER_READ)
  end
end

-- The same without a look at the clock: what goes on for long is stopped at the next count.
function host.charge(steps)
  instructions_left = instructions_left - steps
end

-- Steps that a call of the library takes at once, each about as long as an instruction.
function host.spend_steps(steps)
  spend(steps)
end

-- A collection that the script asked for.
function host.charge_collection()
  if begin_count then
    instructions_left = instructions_left - collectgarbage("count") * (1024 / ALLOCATED_PER_INSTRUCTION)
  end
end

-- What is left of the run, in instructions; nothing is counted where none runs.
function host.instructions_left()
  return running and max(instructions_left, 0) or 0
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

function host.set_limits(instructions, seconds, memory_bytes, argument_bytes)
  instructions_max, seconds_max, memory_max, arguments_max = instructions, seconds, memory_bytes, argument_bytes
end

-- The time of the node in microseconds, while nothing but the keyspace concerns the calls of a run; else nil.
function host.time()
  return time
end

-- What encloses a run of a script: `begin` before it, `ended` after. `aborted` is for the handler around all that a script
-- does: if the script is told to abort, what runs from there on is trusted code.
function host.begin(now)
  time = now
  instructions_left, started, is_short = instructions_max, nil, true
  charge_at = instructions_max - CHARGED
  aborting, abort_place = false, nil
  running = true
  calm_period = PERIOD
  if measured then
    left_each = EACH
    sethook(measure_each, "", 1)
  elseif begin_count then
    period = PERIOD
    begin_count(PERIOD)
  elseif period ~= PERIOD then
    set_period(PERIOD)
  end
  if not has_sentinel then
    newproxy(mould)
    has_sentinel = true
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
