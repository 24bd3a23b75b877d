-- Errors as the server words and places them, and the functions that catch them.

local host = ...

local error, getmetatable, select, tonumber, tostring = error, getmetatable, select, tonumber, tostring
local type, unpack, xpcall = type, unpack, xpcall
local floor = math.floor
local getinfo, match = debug.getinfo, string.match
local aborted, charge, check_abort, is_aborting = host.aborted, host.charge, host.check_abort, host.is_aborting
local globals = host.globals
local has_error_tables = host.python.has(7, 0) -- before, every error was a string

host.functions = {} -- what scripts see of these files: C functions on the server
local host_functions = host.functions

-- Places --------------------------------------------------------------------------------------------------------------

local function is_host(info)
  return info ~= nil and info.source == "=host"
end

-- `level` 1 is the caller; in another thread level 0 is the function that runs there.
local function frame(thread, level, what)
  if thread then
    return getinfo(thread, level, what)
  end
  return getinfo(level + 1, what)
end

-- Who raised the error that is being handled, on this stack or on that of a dead coroutine. A host function with all that
-- it calls counts as the one C function that it is on the server. Returns the place that the error belongs to (nil if
-- the stack ends), and for an error of a host function how that was called.
local function origin(thread)
  local level = thread and 0 or 1
  if not thread then
    while is_host(frame(nil, level, "S")) do -- the handlers
      level = level + 1
    end
  end
  local raiser = frame(thread, level, "Sl")
  local behind = level
  local info = raiser
  while info and info.what == "C" do
    behind = behind + 1
    info = frame(thread, behind, "S")
  end
  if not is_host(info) then
    if raiser and raiser.what == "C" then
      raiser = frame(thread, level + 1, "Sl")
    end
    return raiser
  end
  level = behind
  while true do
    info = frame(thread, level + 1, "Sf")
    if not (is_host(info) or info and info.what == "C" and host_functions[info.func]) then
      return frame(thread, level + 1, "Sl"), frame(thread, level, "n")
    end
    level = level + 1
  end
end

-- `message` as the server's C functions word it: "user_script:3: bad argument #1 to 'insert' ...".
local function placed(message, thread)
  if type(message) ~= "string" then
    if type(message) == "userdata" and message ~= host.null then
      return "internal error" -- a Python exception must not reach a script, wherever it came from
    end
    return message
  end
  local text = match(message, "^host:%d+: (.*)$")
  if not text then
    return message
  end
  local place, called = origin(thread)
  if not called then -- error(message, 2) where the server has a C function below: no place
    if text == "stack overflow" and place and place.currentline > 0 then -- the hook took the last of the script's stack
      return place.short_src .. ":" .. place.currentline .. ": " .. text
    end
    return text
  end
  local number, rest = match(text, "^bad argument #(%d+) to '[^']*' (.*)$")
  if number then
    local name = called.name or "?"
    number = number + 0
    if called.namewhat == "method" and number > 0 then
      number = number - 1
      if number == 0 then
        text = "calling '" .. name .. "' on bad self " .. rest
      end
    end
    if number > 0 or called.namewhat ~= "method" then
      text = "bad argument #" .. number .. " to '" .. name .. "' " .. rest
    end
  end
  if place and place.currentline > 0 then
    text = place.short_src .. ":" .. place.currentline .. ": " .. text
  end
  return text
end

local function place_error(message)
  return (placed(message))
end

-- The handler around all that a script does: from here on it is trusted code that runs.
local function last_error(message)
  return aborted() or (placed(message))
end

-- The error of a script that failed: {err, source, line}, as the server's own handler makes it.
local function final_error(err)
  local abort = aborted()
  if abort then
    return abort
  end
  local place = origin()
  if not has_error_tables then
    local kind = type(err)
    if kind ~= "string" and kind ~= "number" then -- the server's own handler fails
      err = "err_handler_def:9: attempt to concatenate local 'err' (a " .. kind .. " value)"
      place = { source = "@err_handler_def", currentline = 9 }
    end
    err = { err = tostring(placed(err)) }
  elseif type(err) ~= "table" then
    err = { err = "ERR " .. tostring(placed(err)) }
  end
  if place then
    err.source = place.source
    err.line = place.currentline
  end
  return err
end

local SHORT, BYTES_PER_INSTRUCTION = 1000, 64 -- of texts that a place is put in front of

-- Raising -------------------------------------------------------------------------------------------------------------

-- The place in front of an error of `level`, as luaL_where gives it: what a host function calls on its way is no level of the server's.
local function where(level)
  local at = 3 -- behind `error`
  local info = getinfo(at, "Slf")
  while info and level > 1 do
    if is_host(info) or info.what == "C" then -- as far as the function that a script can name
      while info and (is_host(info) or info.what == "C") and not host_functions[info.func] do
        local behind = getinfo(at + 1, "Slf")
        if not behind or not (is_host(behind) or behind.what == "C") then
          break
        end
        at, info = at + 1, behind
      end
    end
    at, level = at + 1, level - 1
    info = getinfo(at, "Slf")
  end
  if info and not is_host(info) and info.currentline > 0 then
    return info.short_src .. ":" .. info.currentline .. ": "
  end
  return ""
end

function globals.error(...)
  local message, level = ...
  local kind = type(level)
  if type(message) == "string" and #message > SHORT then
    charge(#message / BYTES_PER_INSTRUCTION)
  end
  if kind == "string" then
    charge(#level)
  end
  if level ~= nil and not (kind == "number" or kind == "string" and tonumber(level)) then
    error(message, level) -- a bad argument
  end
  level = level == nil and 1 or floor(tonumber(level))
  if level > 0 and (type(message) == "string" or type(message) == "number") then
    message = where(level) .. message
  end
  error(message, 0)
end

-- Catching ------------------------------------------------------------------------------------------------------------

-- As many results as there are: `err` as a parameter would add a nil to a function that returns nothing.
local function settle_pcall(ok, ...)
  if ok then
    return true, ...
  end
  check_abort()
  local err = ...
  if type(err) == "table" and has_error_tables then
    local text = err.err
    local kind = type(text)
    if kind == "string" or kind == "number" then
      err = text
    end
  end
  return false, err
end

local function is_callable(f)
  local metatable = type(f) ~= "function" and getmetatable(f)
  return not metatable and type(f) == "function" or type(metatable) == "table" and metatable.__call ~= nil
end

function globals.pcall(...)
  local count = select("#", ...)
  local f = ...
  if count == 0 then
    f = true -- what luaRedisPcall finds on its stack then
  end
  if count <= 1 or not is_callable(f) then
    return settle_pcall(xpcall(f, place_error))
  end
  local arguments = { ... }
  return settle_pcall(xpcall(function()
    return f(unpack(arguments, 2, count))
  end, place_error))
end

local function settle_xpcall(ok, ...)
  if not ok then
    check_abort()
  end
  return ok, ...
end

function globals.xpcall(...)
  local f, handler = ...
  if select("#", ...) < 2 then
    error("bad argument #2 to 'xpcall' (value expected)")
  end
  if type(handler) ~= "function" then
    return settle_xpcall(xpcall(f, handler))
  end
  return settle_xpcall(xpcall(f, function(err)
    if is_aborting() then
      return err
    end
    return handler((placed(err)))
  end))
end

host.origin = origin
host.placed = placed
host.place_error = place_error
host.last_error = last_error
host.final_error = final_error
