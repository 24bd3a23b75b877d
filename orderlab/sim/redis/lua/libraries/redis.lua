-- The table `redis` of scripts: redis.call and its kin, with the conversion of replies to Lua values.

local host = ...
local python = host.python

local collectgarbage, error, next, select, tonumber, type, unpack = collectgarbage, error, next, select, tonumber, type, unpack
local getinfo, format = debug.getinfo, string.format
local byte, find, match, sub = string.byte, string.find, string.match, string.sub
local abort, as_int, check_arguments, time = host.abort, host.as_int, host.check_arguments, host.time

-- Replies ------------------------------------------------------------------------------------------------------------
-- Python returns: a string or number for itself; false for nil; true and the items for an array of those; else nil and
-- the name of one of the cases below with its values.

local function error_table(message, is_reply)
  local err = {}
  err.err = message
  if is_reply then
    err.ignore_error_stats_update = true
  end
  return err
end

-- Before Redis 7.0 errors were strings, and those of calls that are not carried out named the line first (luaPushError).
local text, has = python.text, python.has
local has_error_tables = has(7, 0)

local function refused(message, from)
  if has_error_tables then
    return message
  end
  local level = 2
  local info = getinfo(level, "Sl")
  while info and info.source == "=host" do
    level = level + 1
    info = getinfo(level, "Sl")
  end
  return info and format("%s: %d: %s", info.source, info.currentline, sub(message, from or 1)) or message
end

local RETRY = {}
local cases = {}

function cases.status(text)
  return { ok = text }
end

function cases.null()
  return nil
end

function cases.boolean(value)
  return value
end

function cases.double(value)
  return { double = value }
end

function cases.retry()
  return RETRY
end

function cases.full()
  error("not enough memory", 0)
end

function cases.abort()
  abort()
end

cases.tree = host.tree

local function receive(first, ...)
  if first then
    if first == true then
      return { ... }
    end
    return first
  end
  if first == nil then
    local case, value, is_reply = ...
    if not case then
      return { ok = "OK" }
    elseif case == "error" then
      value = (is_reply == "refused" or is_reply == "unsent") and refused(value) or value
      if not has_error_tables then
        error(value, 0)
      end
      error(error_table(value, is_reply and is_reply ~= "unsent"))
    end
    return cases[case](select(2, ...))
  end
  return false
end

local function receive_protected(first, case, value, ...)
  if first == nil and case == "error" then
    local is_reply = ...
    value = (is_reply == "refused" or is_reply == "unsent") and refused(value) or value
    return error_table(value, is_reply and is_reply ~= "unsent")
  end
  return receive(first, case, value, ...)
end

-- Arguments ------------------------------------------------------------------------------------------------------------

local recording = false -- whether each call reports its line
local ARGUMENTS_AT_ONCE = 60
local LARGE_KILOBYTES = 8192 -- with more in memory, strings may be so long that their bytes are counted before they are copied
local NOT_TEXT = text("ERR Lua redis lib command arguments must be strings or integers")

local number_text = has(7, 2) and python.number_text or function(number)
  return format("%.17g", number)
end

-- All arguments as strings, their number and bytes, or nil. Numbers as luaArgsToRedisArgv writes them; -0 and NaN keep their
-- sign only here.
local function texts(...)
  local count, bytes = select("#", ...), 0
  local arguments = { ... }
  for i = 1, count do
    local argument = arguments[i]
    local kind = type(argument)
    if kind == "number" then
      arguments[i] = number_text(argument)
    elseif kind ~= "string" then
      return nil
    end
    bytes = bytes + #arguments[i]
  end
  return arguments, count, bytes
end

-- Lupa copies the argument tuple once for each argument: long lists go in portions.
local function send_portions(arguments, count)
  for i = 1, count, ARGUMENTS_AT_ONCE do
    local last = i + ARGUMENTS_AT_ONCE - 1
    python.portion(unpack(arguments, i, last < count and last or count))
  end
  return python.call_portions()
end

local function send_slowly(...)
  local arguments, count, bytes = texts(...)
  if not arguments then
    return nil, "error", NOT_TEXT, "unsent"
  end
  check_arguments(bytes)
  if count > ARGUMENTS_AT_ONCE then
    return send_portions(arguments, count)
  end
  return python.call(unpack(arguments, 1, count))
end

-- TIME needs no keyspace: while it may not be interrupted or recorded it is answered here.
local function time_reply(now)
  local us = now % 1000000
  return { format("%d", (now - us) / 1000000), format("%d", us) }
end

-- Python cannot see the sign of a zero: it is looked at here in the first nine arguments, and among more than nine
-- Python asks for the slow way.
local function caller(receive)
  local python_call, python_line = python.call, python.line
  return function(...)
    if recording then
      python_line(getinfo(2, "l").currentline)
    end
    local name, b, c, d, e, f, g, h, i, many = ...
    if b == nil and name == "TIME" then
      local now = time()
      if now and select("#", ...) == 1 then
        return time_reply(now)
      end
    end
    if many ~= nil and select("#", ...) > ARGUMENTS_AT_ONCE or collectgarbage("count") > LARGE_KILOBYTES
        or b == 0 and 1 / b < 0 or c == 0 and 1 / c < 0 or d == 0 and 1 / d < 0 or e == 0 and 1 / e < 0
        or f == 0 and 1 / f < 0 or g == 0 and 1 / g < 0 or h == 0 and 1 / h < 0 or i == 0 and 1 / i < 0 then
      return (receive(send_slowly(...)))
    end
    local reply = receive(python_call(...))
    if reply == RETRY then
      return (receive(send_slowly(...)))
    end
    return reply
  end
end

-- What call.c, which returns arrays as tables, writes numbers itself and takes no long arguments, leaves to Lua.
local function otherwise(receive)
  local python_take = python.take
  return function(case, ...)
    if case == "time" then
      local now = time()
      if now then
        return time_reply(now)
      end
    elseif case == "take" then
      return (receive(python_take()))
    elseif case ~= "slow" then
      return (receive(nil, case, ...))
    end
    return (receive(send_slowly(...)))
  end
end

local redis = host.redis_constants
for name, receive in next, { call = receive, pcall = receive_protected } do
  redis[name] = host.direct_call and host.direct_call(otherwise(receive)) or caller(receive)
  host.functions[redis[name]] = true -- a function of C for what looks for a place of an error, whichever it is
end

-- The rest: texts and checks of script_lua.c -------------------------------------------------------------------------

local function raise(message)
  message = text(message)
  if not has_error_tables then
    error(sub(message, 5), 0) -- without the code ERR
  end
  error(error_table(message))
end

local function single_field_table(field, prefix)
  return function(...)
    local value = ...
    if select("#", ...) ~= 1 or type(value) ~= "string" then
      return error_table(refused(text("ERR wrong number or type of arguments"), 5))
    end
    return { [field] = prefix and has_error_tables and prefix(value) or value }
  end
end

-- "-CODE text", "CODE text" and "text" (luaPushErrorBuff): a lone word gets the code ERR.
local function with_code(text)
  host.spend_bytes(#text * 4)
  text = match(text, "^[^%z]*")
  local last = #text
  while last > 0 and (byte(text, last) == 10 or byte(text, last) == 13) do
    last = last - 1
  end
  text = sub(text, byte(text, 1) == 45 and 2 or 1, last)
  return find(text, " ", 1, true) and text or "ERR " .. text
end

redis.error_reply = single_field_table("err", with_code)
redis.status_reply = single_field_table("ok")

function redis.sha1hex(...)
  local text = ...
  if select("#", ...) ~= 1 then
    raise("ERR wrong number of arguments")
  end
  if type(text) == "number" then
    text = text .. ""
  elseif type(text) ~= "string" then
    text = ""
  end
  host.charge(100)
  host.spend_bytes(#text)
  return python.sha1hex(text)
end

function redis.log(...)
  if select("#", ...) < 2 then
    raise("ERR redis.log() requires two arguments or more.")
  elseif not tonumber((...)) then
    raise("ERR First argument must be a number (log level).")
  end
  local level = as_int((...))
  if level < redis.LOG_DEBUG or level > redis.LOG_WARNING then
    raise("ERR Invalid debug level.")
  end
end

function redis.setresp(...)
  local version = as_int((...))
  if select("#", ...) ~= 1 then
    raise("ERR redis.setresp() requires one argument.")
  elseif version ~= 2 and version ~= 3 then
    raise("ERR RESP version must be 2 or 3.")
  end
  python.set_resp(version)
end

function redis.set_repl(...)
  local flags = as_int((...))
  if select("#", ...) ~= 1 then
    raise("ERR redis.set_repl() requires two arguments.")
  elseif flags < redis.REPL_NONE or flags > redis.REPL_ALL then
    raise("ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.")
  end
end

function redis.replicate_commands()
  return has_error_tables or not python.has_written()
end

function redis.breakpoint()
  return false
end

function redis.debug() end

local function acl_check_cmd(...)
  if select("#", ...) == 0 then
    raise("ERR Please specify at least one argument for this redis lib call")
  end
  local arguments, count = texts(...)
  if not arguments then
    raise(NOT_TEXT)
  end
  local allowed = python.may_call(unpack(arguments, 1, count))
  if allowed == nil then
    raise("ERR Invalid command passed to redis.acl_check_cmd()")
  end
  return allowed
end

if has(7, 0) then
  redis.acl_check_cmd = acl_check_cmd
end

host.libraries.redis = redis
if has(7, 2) then
  host.libraries.os = { clock = python.clock } -- alone: 7.4.1 and Valkey have no more
end

function host.set_recording(wanted)
  recording = wanted
end

function host.globals.__redis__err__handler(err)
  return (host.final_error(err))
end
