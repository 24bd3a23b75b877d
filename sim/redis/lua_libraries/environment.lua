-- The table of globals of scripts.

local host = ...

local collectgarbage, error, getmetatable, next, select, setmetatable = collectgarbage, error, getmetatable, next, select, setmetatable
local tonumber, type = tonumber, type
local getinfo, match, concat = debug.getinfo, string.match, table.concat
local check_memory, protect, spend_bytes = host.check_memory, host.protect, host.spend_bytes
local note_setting = host.python.note_setting
local globals, libraries, host_functions = host.globals, host.libraries, host.functions

for _, name in ipairs({ "_VERSION", "assert", "error", "gcinfo", "ipairs", "rawequal", "select", "tonumber", "tostring",
  "type", "unpack" }) do
  globals[name] = _G[name]
end

-- The garbage collector is shared by all scripts of a state: a script may ask for work, not change the settings.
local pause, step_multiplier = 200, 200

function globals.collectgarbage(...)
  local option, value = ...
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
  end
  return collectgarbage(...)
end

-- A pattern's items nest on the C stack, one frame an item: lstrlib.c of Lua 5.1 has no limit of its own.
local PATTERN_BYTES_MAX = 10000

local LONG = 65536 -- bytes from which on it counts what a call walks through
local MATCHING = 32 -- bytes are copied in the time in which a pattern is tried at one

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
    local text, pattern = ...
    if not vetted[pattern] then
      vet(pattern)
    end
    if type(text) == "string" and #text > LONG then
      spend_bytes(#text * MATCHING)
    end
    return f(...)
  end
end

for _, name in ipairs({ "find", "gfind", "gmatch", "gsub", "match" }) do
  libraries.string[name] = with_vetted_pattern(string[name])
end

local function with_length(f)
  return function(...)
    local text = ...
    if type(text) == "string" and #text > LONG then
      spend_bytes(#text)
    end
    return f(...)
  end
end

for _, name in ipairs({ "lower", "reverse", "upper" }) do
  libraries.string[name] = with_length(string[name])
end

local INTEGERS = 2 ^ 32 -- the count is a C int
local rep = string.rep

function libraries.string.rep(...)
  local text, count = ...
  count = tonumber(count)
  if count and type(text) == "string" then
    count = count % INTEGERS
    if text == "" then
      return ""
    elseif count < INTEGERS / 2 and #text * count > LONG then
      check_memory(#text * count)
      spend_bytes(#text * count)
    end
  end
  return rep(...)
end

local sort, table_concat = table.sort, table.concat
local ITEM_BYTES = 16

function libraries.table.sort(...)
  local t = ...
  if type(t) == "table" then
    host.spend_reading(#t)
  end
  return sort(...)
end

function libraries.table.concat(...)
  local t = ...
  if type(t) == "table" then
    spend_bytes(#t * ITEM_BYTES)
  end
  local text = table_concat(...)
  spend_bytes(#text)
  return text
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
