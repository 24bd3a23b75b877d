-- The table of globals of scripts.

local host = ...

local collectgarbage, error, getmetatable, next, select, setmetatable = collectgarbage, error, getmetatable, next, select, setmetatable
local tonumber, type = tonumber, type
local getinfo, concat = debug.getinfo, table.concat
local charge_digits, protect = host.charge_digits, host.protect
local note_setting = host.python.note_setting
local globals, libraries, host_functions = host.globals, host.libraries, host.functions

for _, name in ipairs({ "_VERSION", "assert", "gcinfo", "ipairs", "rawequal", "tostring", "type" }) do
  globals[name] = _G[name]
end

-- The garbage collector is shared by all scripts of a state: a script may ask for work, not change the settings.
local pause, step_multiplier = 200, 200

function globals.collectgarbage(...)
  local option, value = ...
  charge_digits(value)
  if option == "stop" or option == "restart" then
    return 0
  elseif option == "setpause" then
    local before = pause
    pause = tonumber(value) or 0
    note_setting()
    return before
  elseif option == "setstepmul" then
    local before = step_multiplier
    step_multiplier = tonumber(value) or 0
    note_setting()
    return before
  elseif option ~= "count" then
    host.charge_collection()
  end
  return collectgarbage(...)
end

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
host.missing_global = missing_global

-- Closes the environment once all files have added to it; returns the names under which scripts find host functions.
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
  if host.python.is_valkey() then
    globals.server = globals.redis
  end
  getmetatable("").__index = libraries.string
  getmetatable("").__metatable = protect({ __index = globals.string })
  setmetatable(globals, { __index = missing_global })
  local environment = protect(globals, protect({ __index = missing_global }))
  mark("__index", missing_global)
  for name, value in next, host.further_functions or {} do
    mark(name, value)
  end
  globals._G = environment
  host.environment = environment
  return concat(names, " ")
end
