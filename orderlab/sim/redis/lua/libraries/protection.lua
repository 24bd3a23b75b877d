-- Read-only tables. Redis makes the tables that scripts share read-only inside its own Lua; a stock Lua needs stand-ins: a
-- protected table is an empty table whose metatable leads to the contents, and the functions that work without metamethods
-- know the contents too.
--
-- This is the first of the trusted files. Each gets the table `host` and adds to it what the later ones need; scripts never
-- see it. Nothing here may use a global once scripts run: the globals are gone by then.
--
-- Every function in these files that scripts may call is a C function on the server. Two things keep the difference from
-- showing: errors that they raise begin with "host:", and every place where a script could see one puts the caller's place
-- and name there (errors.lua); and tail calls of host functions, and in these files all tail calls, are compiled as plain
-- calls (sandbox.py).

local host = ...

local error, getmetatable, next, pairs = error, getmetatable, next, pairs
local rawget, rawset, select, setmetatable, type = rawget, rawset, select, setmetatable, type

-- An emptied table keeps its places, and `next` looks at each of them.
local charging = function(steps)
  host.charge(steps)
end
if host.walker then
  next = host.walker(next, charging)
end
_G.next = next

local function copy(library)
  local result = {}
  for name, value in next, library do
    result[name] = value
  end
  return result
end

host.globals = {}
host.libraries = {
  coroutine = copy(coroutine), math = copy(math), string = copy(string), table = copy(table),
}
host.cleaners = {} -- functions that drop what a library holds between two calls of its own
local globals, libraries = host.globals, host.libraries

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

function globals.next(...)
  local t, key = ...
  local inside = contents[t]
  if inside then
    return next(inside, key)
  end
  return next(...)
end

function globals.pairs(...)
  local t = ...
  if contents[t] then
    return globals.next, t, nil
  end
  pairs(...) -- raises, or has nothing to say
  return next, t, nil
end

function globals.rawget(...)
  local t, key = ...
  local inside = contents[t]
  if inside and select("#", ...) >= 2 then
    return rawget(inside, key)
  end
  return rawget(...)
end

function globals.rawset(...)
  if contents[(...)] and select("#", ...) >= 3 then
    error(READ_ONLY, 0)
  end
  return rawset(...)
end

function globals.getmetatable(...)
  local t = ...
  if contents[t] or t == host.null then
    return shown_metatable[t]
  end
  return getmetatable(...)
end

function globals.setmetatable(...)
  local t, metatable = ...
  if contents[t] and (type(metatable) == "table" or (metatable == nil and select("#", ...) >= 2)) then
    error(READ_ONLY, 0)
  end
  return setmetatable(...)
end

host.contents = contents
host.protect = protect
host.refuse_write = refuse_write
host.shown_metatable = shown_metatable
