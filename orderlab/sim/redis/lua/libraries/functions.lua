-- Function libraries (function_lua.c): what a library sees while it loads is `redis` with little in it; afterwards its
-- functions see everything that scripts do, but for KEYS, ARGV and the script debugger.

local host = ...
local begin, ended, final_error = host.begin, host.ended, host.final_error
local globals, protect = host.globals, host.protect
local error, getmetatable, loadstring, next, select = error, getmetatable, loadstring, next, select
local setmetatable, type, unpack = setmetatable, type, unpack
local concat, find, lower = table.concat, string.find, string.lower

local redis = host.libraries.redis
redis.breakpoint, redis.debug, redis.replicate_commands = nil, nil, nil
globals.__redis__err__handler = nil

-- Registration -----------------------------------------------------------------------------------------------------------

local registered, count

local function raise(message)
  local err = {}
  err.err = "ERR " .. message
  error(err)
end

local function as_text(value)
  local kind = type(value)
  return (kind == "string" and value) or (kind == "number" and value .. "") or nil
end

local FLAGS = { "no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys" }
local known_flags = {}
for _, flag in ipairs(FLAGS) do
  known_flags[flag] = true
end

local function read_flags(flags)
  local result, index = {}, 1
  while true do
    local flag = flags[index]
    if flag == nil then
      return concat(result, ",")
    end
    flag = as_text(flag)
    if not flag or not known_flags[lower(flag)] then
      raise("unknown flag given")
    end
    result[index] = lower(flag)
    index = index + 1
  end
end

local function read_named(named)
  if type(named) ~= "table" then
    raise("calling redis.register_function with a single argument is only applicable to Lua table "
      .. "(representing named arguments).")
  end
  local name, callback, description, flags
  for key, value in next, named do
    key = as_text(key)
    if not key then
      raise("named argument key given to redis.register_function is not a string")
    end
    key = lower(key)
    if key == "function_name" then
      name = as_text(value) or raise("function_name argument given to redis.register_function must be a string")
    elseif key == "description" then
      description = as_text(value) or raise("description argument given to redis.register_function must be a string")
    elseif key == "callback" then
      if type(value) ~= "function" then
        raise("callback argument given to redis.register_function must be a function")
      end
      callback = value
    elseif key == "flags" then
      if type(value) ~= "table" then
        raise("flags argument to redis.register_function must be a table representing function flags")
      end
      flags = read_flags(value)
    else
      raise("unknown argument given to redis.register_function")
    end
  end
  if not name then
    raise("redis.register_function must get a function name argument")
  elseif not callback then
    raise("redis.register_function must get a callback argument")
  end
  return name, callback, description, flags
end

local function read_positional(name, callback)
  name = as_text(name) or raise("first argument to redis.register_function must be a string")
  if type(callback) ~= "function" then
    raise("second argument to redis.register_function must be a function")
  end
  return name, callback
end

local function register_function(...)
  if not registered then
    raise("redis.register_function can only be called on FUNCTION LOAD command")
  end
  local argument_count = select("#", ...)
  local name, callback, description, flags
  if argument_count == 1 then
    name, callback, description, flags = read_named(...)
  elseif argument_count == 2 then
    name, callback = read_positional(...)
  else
    raise("wrong number of arguments to redis.register_function")
  end
  if find(name, "[^%w_]") or name == "" then
    raise("Library names can only contain letters, numbers, or underscores(_) and must be at least one character long")
  end
  if registered[lower(name)] then
    raise("Function already exists in the library")
  end
  registered[lower(name)] = true
  registered[count + 1], registered[count + 2] = name, callback
  registered[count + 3], registered[count + 4] = description or false, flags or ""
  count = count + 4
end

-- Loading ----------------------------------------------------------------------------------------------------------------

local library_redis = setmetatable({ register_function = register_function }, { __index = host.missing_global })
for _, name in ipairs({ "log", "LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING", "REDIS_VERSION",
  "REDIS_VERSION_NUM" }) do
  library_redis[name] = redis[name]
end
local protected = protect(library_redis)
local library_globals = setmetatable({ redis = protected, server = host.python.is_valkey() and protected or nil },
  { __index = host.missing_global })
host.is_loading_library = true -- all code here runs in the stand-in, whose contents depend on whether a library loads
host.further_functions = { register_function = register_function }

-- Runs the code of a library. Returns a table of name, callback, description (or false) and flags for each of its functions, and the
-- table's size; or as a script that failed.
function host.load_library(code)
  local metatable = getmetatable(host.environment)
  registered, count = {}, 0
  metatable.__index = library_globals
  begin()
  local ok, err = host.run(code, final_error)
  metatable.__index = globals
  local found = registered
  registered = nil
  if not ok then
    return host.failed(err)
  end
  ended()
  return found, count
end

-- Some of what a library has registered: as many as Lua's stack takes at once.
function host.registered_functions(found, from, to)
  return unpack(found, from, to)
end

-- Running ----------------------------------------------------------------------------------------------------------------

function host.run_function(f, now, keys, arguments)
  begin(now)
  return host.outcome(host.run(function()
    return (f(keys, arguments))
  end, final_error))
end

-- As host.script_runner, for a function of a library.
function host.function_runner(key_count)
  local names = {}
  for i = 1, key_count do
    names[i] = "k" .. i
  end
  local keys = concat(names, ",")
  local source = "local run = ... return function(f, now" .. (key_count > 0 and "," or "") .. keys
    .. ", ...) return run(f, now, {" .. keys .. "}, {...}) end"
  return loadstring(source, "=host")(host.run_function)
end
