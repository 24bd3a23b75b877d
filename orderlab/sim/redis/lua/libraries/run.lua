-- Runs a compiled script or function and hands its outcome to Python: a string, number, boolean or nil as itself; true and
-- the items for an array of strings and numbers; false and the parts of an error; nil and the parts of any other table.

local host = ...
local globals = host.globals
local begin, ended, final_error, last_error = host.begin, host.ended, host.final_error, host.last_error
local contents = host.contents

local getmetatable, ipairs, next, rawget, select = getmetatable, ipairs, next, rawget, select
local setmetatable, type, unpack, xpcall = setmetatable, type, unpack, xpcall
local run = host.run_in_c or xpcall -- which Lua counts among the functions of C that a script lies on
host.run = run
local concat, format, loadstring, tostring = table.concat, string.format, loadstring, tostring

-- Replies (luaReplyToRedisReply of script_lua.c) -----------------------------------------------------------------------

local ITEMS_AT_ONCE = 4000
-- Slots of the C stack of Lua that the server's recursion holds: 1 for each array on the way down, for a map 3 (its values)
-- or 4 (its keys), for a set 3; 4 must be free at every value.
local FIRST_SLOTS, SLOTS_MAX = 2, 8000 - 4
local REPLY_BYTES_MAX = 64 * 1024 * 1024 -- one string may stand in a reply a thousand times, and is copied as often
local parts, size, bytes_left
local has_big_numbers = host.python.has(7, 0) -- and verbatim strings

local function put(code, payload)
  if type(payload) == "string" then
    bytes_left = bytes_left - #payload
    if bytes_left < 0 then
      host.python.limit("bytes in a reply")
      host.abort()
    end
  end
  parts[size + 1] = code
  parts[size + 2] = payload
  size = size + 2
end

local put_value

local function put_map(entries, slots)
  put("%", "")
  for key, value in next, contents[entries] or entries do
    put_value(key, slots + 4)
    put_value(value, slots + 3)
  end
  put("]", "")
end

local function put_set(entries, slots)
  put("~", "")
  for key in next, contents[entries] or entries do
    put_value(key, slots + 3)
  end
  put("]", "")
end

local function put_table(t, slots)
  local field = rawget(t, "err")
  if type(field) == "string" then
    return put("!", field)
  end
  field = rawget(t, "ok")
  if type(field) == "string" then
    return put("+", field)
  end
  field = rawget(t, "double")
  if type(field) == "number" then
    if field ~= field then
      return put(",", format("%.17g", field)) -- "-nan" as a rule
    end
    return put(",", field == 0 and 1 / field < 0 and "-0" or field) -- a number that crosses into Python loses the sign
  end
  field = has_big_numbers and rawget(t, "big_number")
  if type(field) == "string" then
    return put("(", field)
  end
  field = has_big_numbers and rawget(t, "verbatim_string")
  if type(field) == "table" then
    local text, kind = rawget(field, "string"), rawget(field, "format")
    if type(text) == "string" and type(kind) == "string" then
      put("=", kind)
      return put("=", text)
    end
  end
  field = rawget(t, "map")
  if type(field) == "table" then
    return put_map(field, slots)
  end
  field = rawget(t, "set")
  if type(field) == "table" then
    return put_set(field, slots)
  end
  put("*", "")
  for _, value in ipairs(t) do
    put_value(value, slots + 1)
  end
  put("]", "")
end

function put_value(value, slots)
  local kind = type(value)
  if slots > SLOTS_MAX then
    put("!", "ERR reached lua stack limit")
  elseif kind == "string" then
    put("$", value)
  elseif kind == "number" then
    put(":", value)
  elseif kind == "boolean" then
    put("?", value)
  elseif kind == "table" then
    put_table(value, slots)
  else
    put("-", "")
  end
end

local function take_parts(from)
  local last = from + ITEMS_AT_ONCE - 1
  if last >= size then
    return unpack(parts, from, size)
  end
  return unpack(parts, from, last)
end

local function put_all(value)
  parts, size, bytes_left = {}, 0, REPLY_BYTES_MAX
  put_value(value, FIRST_SLOTS)
end

-- The size of an array of strings and numbers, or nil for any other table. The fields that make something else of a table are
-- asked for one by one: `next` after the last item sees none that its order has before.
local function flat_size(t)
  local count = #t
  if getmetatable(t) or count >= ITEMS_AT_ONCE or t.err or t.ok or t.double or t.big_number or t.verbatim_string or t.map
      or t.set then
    return nil
  end
  local bytes = 0
  for i = 1, count do
    local item = t[i]
    local kind = type(item)
    if kind == "string" then
      bytes = bytes + #item
    elseif kind ~= "number" then
      return nil
    end
  end
  return bytes <= REPLY_BYTES_MAX and count or nil
end

-- Ends of a run --------------------------------------------------------------------------------------------------------

local function text(value)
  local kind = type(value)
  return (kind == "string" or kind == "number") and tostring(value) or nil
end

local function failed(err)
  local is_table, message, source, line = type(err) == "table"
  if is_table then
    -- lua_getfield and lua_isstring of luaExtractErrorInformation. The script may have given the table a metatable: its
    -- functions are the last of the script to run.
    local _
    _, message, source, line = xpcall(function()
      return text(err.err), text(err.source), text(err.line)
    end, last_error)
  end
  if ended() then
    local place = host.abort_place()
    return false, "abort", place and place.source, place and place.currentline
  elseif is_table then
    return false, "error", text(message), text(source), text(line)
  end
  return false, "failure", tostring(err)
end

local function outcome(ok, value)
  if not ok then
    return failed(value)
  end
  local kind = type(value)
  if kind == "table" then
    local count = flat_size(value)
    if count then
      ended()
      return true, unpack(value, 1, count)
    end
    local done, err = xpcall(function()
      put_all(value)
    end, last_error)
    if not done then
      return failed(err)
    end
    ended()
    return nil, size, take_parts(1)
  end
  ended()
  if kind == "string" or kind == "number" then
    return value
  elseif kind == "boolean" then
    return false, "boolean", value
  end
  return nil
end

host.failed = failed
host.outcome = outcome

function host.take_parts(from)
  return take_parts(from)
end

function host.drop_parts()
  parts = nil
end
host.cleaners[#host.cleaners + 1] = host.drop_parts

-- What a run that was stopped midway may have left behind.
function host.clean()
  globals.KEYS, globals.ARGV = nil, nil
  for _, clean in ipairs(host.cleaners) do
    clean()
  end
end

-- How a run begins -------------------------------------------------------------------------------------------------------

-- A function (script, time, key 1 ... key n, arguments ...): fixed parameters cost less than tables.
function host.script_runner(key_count)
  local names = {}
  for i = 1, key_count do
    names[i] = "k" .. i
  end
  local keys = concat(names, ",")
  local source = [[
    local globals, begin, run, outcome, final_error = ...
    return function(script, now]] .. (key_count > 0 and "," or "") .. keys .. [[, ...)
      globals.KEYS = {]] .. keys .. [[}
      globals.ARGV = {...}
      begin(now)
      return outcome(run(script, final_error))
    end]]
  return loadstring(source, "=host")(globals, begin, run, outcome, final_error)
end

-- The same by way of call.c, which has set KEYS and ARGV, for the functions that stand in a table by their numbers.
local numbered = setmetatable({}, { __mode = "v" })

function host.number(number, script)
  numbered[number] = script
end

if host.keep then
  host.keep(globals, function(script, now)
    begin(now)
    return outcome(run(script, final_error))
  end, numbered)
end

-- The same with the lists in tables that Python filled before.
function host.run_script(script, now, keys, arguments)
  globals.KEYS, globals.ARGV = keys, arguments
  begin(now)
  return outcome(run(script, final_error))
end

function host.append(list, ...)
  local count = #list
  local items = { ... }
  for i = 1, #items do
    list[count + i] = items[i]
  end
end

function host.compile(text, name)
  local f, message = host.load_text(text, name)
  if f then
    return f
  end
  return nil, message
end
