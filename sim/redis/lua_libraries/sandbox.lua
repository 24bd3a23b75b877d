-- What scripts see: read-only copies of the allowed globals, limits that no script can catch, error texts with the
-- place in the script. Redis makes its tables read-only inside its own Lua; a stock Lua needs stand-ins: a protected
-- table is an empty table whose metatable leads to the contents, and the raw functions know the contents too.
--
-- Every function here that scripts may call is a C function on the server. Two things keep the difference from showing:
-- errors raised in these files begin with "host:", and every place where a script could see one calls `placed`,
-- which puts the caller's place and name there; and the loader makes tail calls of host functions plain calls.

local host = ...
local python = host.python

local assert, error, getmetatable, ipairs, next, pairs = assert, error, getmetatable, ipairs, next, pairs
local rawget, rawset, select, setmetatable, tostring, type = rawget, rawset, select, setmetatable, tostring, type
local unpack, xpcall, collectgarbage, loadstring, tonumber = unpack, xpcall, collectgarbage, loadstring, tonumber
local getinfo, sethook, setfenv = debug.getinfo, debug.sethook, setfenv
local byte, match = string.byte, string.match
local concat = table.concat
local string_dump = string.dump

-- Read-only tables -----------------------------------------------------------------------------------------------

local contents = {}        -- stand-in -> the table that it stands for
local shown_metatable = {} -- stand-in -> what getmetatable shows
local READ_ONLY = "Attempt to modify a readonly table"

local function refuse_write()
  error(READ_ONLY)
end

local function protect(table, metatable)
  local stand_in = setmetatable({}, { __index = table, __newindex = refuse_write })
  contents[stand_in] = table
  shown_metatable[stand_in] = metatable
  return stand_in
end

-- Limits: once `aborting` is set nothing of the script runs on -------------------------------------------------------

local ABORT = {}
local PERIOD, COROUTINE_PERIOD = 1000, 250
local clock = os.clock
local aborting = false
local running = false
local instructions_left, seconds_max = 0, 0
local started, last -- processor time at the first and at the last count of a run
local SLOW_SECONDS, SLOW_PERIOD = 0.02, 10 -- when 1000 instructions take so long, every tenth is counted
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

function count()
  if spend(PERIOD) > SLOW_SECONDS then
    sethook(count_slowly, "", SLOW_PERIOD)
  end
end

function count_slowly()
  if spend(SLOW_PERIOD) < SLOW_SECONDS / 100 then
    sethook(count, "", PERIOD)
  end
end

local function count_in_coroutine()
  spend(COROUTINE_PERIOD)
end

-- Places of errors ---------------------------------------------------------------------------------------------------

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
    info = frame(thread, level + 1, "S")
    if not is_host(info) then
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
  if aborting then
    running = false
    return ABORT
  end
  return (placed(message))
end

-- The error of a script that failed: {err, source, line}, as the server's own handler makes it.
local function final_error(err)
  if aborting then
    return last_error(err)
  end
  local place = origin()
  if type(err) ~= "table" then
    err = { err = "ERR " .. tostring(placed(err)) }
  end
  if place then
    err.source = place.source
    err.line = place.currentline
  end
  return err
end

-- Catching errors ----------------------------------------------------------------------------------------------------

local function settle_pcall(ok, err, ...)
  if ok then
    return true, err, ...
  end
  if aborting then
    error(ABORT, 0)
  end
  if type(err) == "table" then
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

local function script_pcall(...)
  local count = select("#", ...)
  local f = ...
  if count <= 1 or not is_callable(f) then
    return settle_pcall(xpcall(f, place_error))
  end
  local arguments = { ... }
  return settle_pcall(xpcall(function()
    return f(unpack(arguments, 2, count))
  end, place_error))
end

local function settle_xpcall(ok, ...)
  if not ok and aborting then
    error(ABORT, 0)
  end
  return ok, ...
end

local function script_xpcall(...)
  local f, handler = ...
  if select("#", ...) < 2 then
    error("bad argument #2 to 'xpcall' (value expected)")
  end
  if type(handler) ~= "function" then
    return settle_xpcall(xpcall(f, handler))
  end
  return settle_xpcall(xpcall(f, function(err)
    if aborting then
      return err
    end
    return handler((placed(err)))
  end))
end

-- Coroutines carry the limits along ------------------------------------------------------------------------------------

local host_functions = {} -- the Lua closures of these files that scripts see
local create, resume = coroutine.create, coroutine.resume

local function new_coroutine(f)
  if host_functions[f] then
    error("bad argument #1 to 'create' (Lua function expected)")
  end
  local thread = create(f)
  sethook(thread, count_in_coroutine, "", COROUTINE_PERIOD)
  return thread
end

local function settle_resume(thread, ok, err, ...)
  if ok then
    return true, err, ...
  end
  if aborting then
    error(ABORT, 0)
  end
  return false, placed(err, thread)
end

local function script_resume(...)
  local thread = ...
  spend(COROUTINE_PERIOD)
  if type(thread) ~= "thread" then
    return resume(...)
  end
  return settle_resume(thread, resume(...))
end

local function settle_wrap(thread, ok, err, ...)
  if ok then
    return err, ...
  end
  if aborting then
    error(ABORT, 0)
  end
  err = placed(err, thread)
  if type(err) == "string" or type(err) == "number" then
    error(err) -- with the caller's place in front, as auxwrap of lbaselib.c
  end
  error(err, 0)
end

local function script_create(...)
  local f = ...
  return new_coroutine(f, ...)
end

local function script_wrap(...)
  local thread = new_coroutine((...))
  return function(...)
    spend(COROUTINE_PERIOD)
    return settle_wrap(thread, resume(thread, ...))
  end
end

-- Loading text, never bytecode -------------------------------------------------------------------------------------------

-- The environment of a chunk is the stand-in of _G, so that assigning to a global is refused. A chunk without such an
-- assignment gets the table itself, which is faster to read; nothing that scripts have leads to it.
local environment
local globals = {}

local function load_text(text, name)
  if byte(text, 1) == 27 then
    text = " " .. text
  end
  -- The parser of Lua 5.1 does not anchor the chunk's name: no collection may happen while it runs.
  collectgarbage("stop")
  local ok, f, message = xpcall(function()
    local f, message = loadstring(text, name)
    if not f then
      return nil, message
    end
    local bytecode, assigns_globals, problem = python.prepare(string_dump(f))
    if problem then
      return nil, problem
    end
    f = bytecode and assert(loadstring(bytecode, name)) or f
    return setfenv(f, (assigns_globals or host.is_loading_library) and environment or globals)
  end, tostring)
  collectgarbage("restart")
  if not ok then
    return nil, f
  end
  return f, message
end

local function script_loadstring(...)
  local text, name = ...
  if type(text) == "number" then
    text = text .. ""
  end
  local name_kind = type(name)
  if type(text) ~= "string" or not (name == nil or name_kind == "string" or name_kind == "number") then
    return loadstring(...) -- raises
  end
  return load_text(text, name == nil and text or name .. "")
end

local function script_load(...)
  local reader, name = ...
  local name_kind = type(name)
  if type(reader) ~= "function" or not (name == nil or name_kind == "string" or name_kind == "number") then
    return host.load(...) -- raises
  end
  local pieces, size = {}, 0
  while true do
    local ok, piece = xpcall(reader, place_error)
    if aborting then
      error(ABORT, 0)
    end
    if not ok then
      return nil, piece
    end
    local kind = type(piece)
    if piece == nil or piece == "" then
      break
    elseif kind ~= "string" and kind ~= "number" then
      return nil, (placed("host:0: reader function must return a string"))
    end
    size = size + 1
    pieces[size] = piece
  end
  return load_text(concat(pieces), name == nil and "=(load)" or name .. "")
end

-- Functions that look through the stand-ins --------------------------------------------------------------------------

local function script_next(...)
  local t, key = ...
  local inside = contents[t]
  if inside then
    return next(inside, key)
  end
  return next(...)
end

local function script_pairs(...)
  local t = ...
  if contents[t] then
    return script_next, t, nil
  end
  return pairs(...)
end

local function script_rawget(...)
  local t, key = ...
  local inside = contents[t]
  if inside and select("#", ...) >= 2 then
    return rawget(inside, key)
  end
  return rawget(...)
end

local function script_rawset(...)
  if contents[(...)] and select("#", ...) >= 3 then
    error(READ_ONLY, 0)
  end
  return rawset(...)
end

local function script_getmetatable(...)
  local t = ...
  if contents[t] or t == host.null then
    return shown_metatable[t]
  end
  return getmetatable(...)
end

local function script_setmetatable(...)
  local t, metatable = ...
  if contents[t] and (type(metatable) == "table" or (metatable == nil and select("#", ...) >= 2)) then
    error(READ_ONLY, 0)
  end
  return setmetatable(...)
end

local table_insert, table_foreach = table.insert, table.foreach

local function insert(...)
  if contents[(...)] then
    local count = select("#", ...)
    if count == 2 or count == 3 then
      error(READ_ONLY, 0)
    end
  end
  return table_insert(...)
end

local function foreach(...)
  local t, f = ...
  local inside = contents[t]
  if inside and type(f) == "function" then
    for key, value in next, inside do
      local result = f(key, value)
      if result ~= nil then
        return result
      end
    end
    return
  end
  return table_foreach(...)
end

local function dump(...)
  if host_functions[(...)] then
    error("unable to dump given function")
  end
  return string_dump(...)
end

-- The garbage collector is shared by all scripts of a shard: a script may ask for work, not change the settings.
local pause, step_multiplier = 200, 200

local function script_collectgarbage(...)
  local option, value = ...
  if option == "stop" or option == "restart" then
    return 0
  elseif option == "setpause" then
    local before = pause
    pause = tonumber(value) or 0
    return before
  elseif option == "setstepmul" then
    local before = step_multiplier
    step_multiplier = tonumber(value) or 0
    return before
  end
  return collectgarbage(...)
end

-- A pattern's items nest on the C stack, one frame an item: lstrlib.c of Lua 5.1 has no limit of its own.
local PATTERN_BYTES_MAX = 10000

local VETTED_MAX = 1000
local vetted, vetted_count = {}, 0

local function vet(pattern)
  if type(pattern) ~= "string" then
    return
  elseif #pattern > PATTERN_BYTES_MAX then
    if match(pattern, "[%^%$%*%+%?%.%(%[%%%-]") then
      error("pattern too complex")
    end
  elseif #pattern <= 100 then
    if vetted_count == VETTED_MAX then
      vetted, vetted_count = {}, 0
    end
    vetted[pattern] = true
    vetted_count = vetted_count + 1
  end
end

local function with_vetted_pattern(f)
  return function(...)
    local _, pattern = ...
    if not vetted[pattern] then
      vet(pattern)
    end
    return f(...)
  end
end

-- The table of globals -------------------------------------------------------------------------------------------------

-- luaSetErrorMetatable of script_lua.c
local function missing_global(...)
  local _, name = ...
  if select("#", ...) ~= 2 then
    error("Wrong number of arguments to luaProtectedTableError")
  end
  local kind = type(name)
  if kind ~= "string" and kind ~= "number" then
    error("Second argument to luaProtectedTableError must be a string or number")
  end
  error("Script attempted to access nonexistent global variable '" .. name .. "'")
end

local function copy(library)
  local result = {}
  for name, value in next, library do
    result[name] = value
  end
  return result
end

for _, name in ipairs({ "_VERSION", "assert", "error", "gcinfo", "ipairs", "rawequal", "select", "tonumber", "tostring",
  "type", "unpack" }) do
  globals[name] = _G[name]
end
globals.collectgarbage = script_collectgarbage
globals.getmetatable = script_getmetatable
globals.load = script_load
globals.loadstring = script_loadstring
globals.next = script_next
globals.pairs = script_pairs
globals.pcall = script_pcall
globals.rawget = script_rawget
globals.rawset = script_rawset
globals.setmetatable = script_setmetatable
globals.xpcall = script_xpcall

local libraries = {
  coroutine = copy(coroutine), math = copy(math), string = copy(string), table = copy(table),
}
libraries.coroutine.create = script_create
libraries.coroutine.resume = script_resume
libraries.coroutine.wrap = script_wrap
libraries.table.foreach = foreach
libraries.table.insert = insert
libraries.string.dump = dump
for _, name in ipairs({ "find", "gfind", "gmatch", "gsub", "match" }) do
  libraries.string[name] = with_vetted_pattern(string[name])
end

function host.finish()
  local names = {}
  local function mark(name, f)
    if type(f) == "function" and getinfo(f, "S").what ~= "C" then
      host_functions[f] = true
      names[#names + 1] = name
    end
  end
  for name, value in next, globals do
    mark(name, value)
  end
  for name, library in next, libraries do
    for field, value in next, library do
      mark(field, value)
    end
    globals[name] = protect(library)
  end
  getmetatable("").__index = libraries.string
  getmetatable("").__metatable = protect({ __index = globals.string })
  environment = setmetatable({}, { __index = setmetatable(globals, { __index = missing_global }), __newindex = refuse_write })
  contents[environment] = globals
  shown_metatable[environment] = protect({ __index = missing_global })
  mark("__index", missing_global)
  for name, value in next, host.further_functions or {} do
    mark(name, value)
  end
  globals._G = environment
  host.environment = environment
  return concat(names, " ")
end

host.cleaners = {} -- functions that drop what a library holds between two calls of its own
host.globals = globals
host.missing_global = missing_global
host.protect = protect
host.libraries = libraries
host.contents = contents
host.load = load
host.load_text = load_text
host.final_error = final_error
host.last_error = last_error
host.ABORT = ABORT

function host.set_seconds(seconds)
  seconds_max = seconds
end

-- What encloses a run of a script. `begin` comes before it, `ended` after; both only from trusted code.
function host.begin(instructions)
  instructions_left, started = instructions, nil
  aborting, abort_place = false, nil
  running = true
  sethook(count, "", PERIOD)
end

function host.ended()
  running = false
  return aborting
end

-- Stop the script from a host function; final errors then name the place.
function host.abort()
  abort_place = origin()
  abort()
end

function host.abort_place()
  return abort_place
end
