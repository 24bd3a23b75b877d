-- Coroutines: they carry the limits of the run along, and their errors are placed like all others.

local host = ...

local error, type = error, type
local create, resume = coroutine.create, coroutine.resume
local check_abort, count_coroutine, spend_resumption = host.check_abort, host.count_coroutine, host.spend_resumption
local enter_thread, running = host.enter_thread, coroutine.running
local placed = host.placed
local library = host.libraries.coroutine

local host_functions = host.functions

local function new_coroutine(f)
  if host_functions[f] then
    error("bad argument #1 to 'create' (Lua function expected)")
  end
  local thread = create(f)
  count_coroutine(thread)
  return thread
end

local function settle_resume(thread, ok, ...)
  enter_thread(running())
  if ok then
    return true, ...
  end
  check_abort()
  return false, placed((...), thread)
end

function library.resume(...)
  local thread = ...
  spend_resumption()
  if type(thread) ~= "thread" then
    return resume(...)
  end
  enter_thread(thread)
  return settle_resume(thread, resume(...))
end

local function settle_wrap(thread, ok, ...)
  enter_thread(running())
  if ok then
    return ...
  end
  check_abort()
  local err = placed((...), thread)
  if type(err) == "string" or type(err) == "number" then
    error(err) -- with the caller's place in front, as auxwrap of lbaselib.c
  end
  error(err, 0)
end

function library.create(...)
  local f = ...
  return new_coroutine(f, ...)
end

function library.wrap(...)
  local thread = new_coroutine((...))
  return function(...)
    spend_resumption()
    enter_thread(thread)
    return settle_wrap(thread, resume(thread, ...))
  end
end
