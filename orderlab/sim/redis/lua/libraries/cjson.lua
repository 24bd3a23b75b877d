-- The library `cjson` (lua-cjson 2.1.0): JSON.

local host = ...
local python, contents, tree, marks = host.python, host.contents, host.tree, host.marks
local bad_argument, check_int, check_string = host.bad_argument, host.check_int, host.check_string
local charge, spend_steps, spend_reading = host.charge, host.spend_steps, host.spend_reading
local error, ipairs, next, rawget, select, type = error, ipairs, next, rawget, select, type
local concat, find, floor, format, gsub, huge = table.concat, string.find, math.floor, string.format, string.gsub, math.huge
local match = string.match
-- JSON null: a null pointer on the server, equal only to itself.
local null = newproxy(true)
getmetatable(null).__tostring = function()
  return "userdata: (nil)"
end
host.null = null
-- Both in machine code, where there is any; they give up on what is not ordinary.
local read_json, write_json
if host.open_json then
  read_json, write_json = host.open_json(null, host.contents)
end
local is_mark = {}
for _, mark in pairs(marks) do
  is_mark[mark] = true
end

-- Strings ------------------------------------------------------------------------------------------------------------

local SAFE, UNSAFE = '^[^%c"\\/]*$', '[%c"\\/]' -- %c: up to 31, and 127
local escapes = {
  ['"'] = '\\"', ["\\"] = "\\\\", ["/"] = "\\/", ["\8"] = "\\b", ["\9"] = "\\t", ["\10"] = "\\n", ["\12"] = "\\f",
  ["\13"] = "\\r", ["\127"] = "\\u007f",
}
for code = 0, 31 do
  local char = string.char(code)
  escapes[char] = escapes[char] or format("\\u%04x", code)
end

local SHORT_BYTES_MAX = 1000
local python_quote = python.quote

local function quote(text)
  if #text > SHORT_BYTES_MAX then
    spend_steps(#text)
    return python_quote(text) or error("not enough memory", 0)
  elseif find(text, SAFE) then
    return '"' .. text .. '"'
  end
  return '"' .. gsub(text, UNSAFE, escapes) .. '"'
end

-- What stands before a value in an object. Names of fields recur: they are remembered, up to a bound.
local REMEMBERED_BYTES_MAX, REMEMBERED_MAX = 40, 4096
local before_first, before_later, before_first_string, before_later_string, remembered_count

local function forget()
  before_first, before_later, before_first_string, before_later_string, remembered_count = {}, {}, {}, {}, 0
end
forget()

local function before(is_first, name, quotation)
  local text = (is_first and "{" or ",") .. quote(name) .. ":" .. quotation
  if #name <= REMEMBERED_BYTES_MAX then
    if remembered_count == REMEMBERED_MAX then
      forget()
    end
    remembered_count = remembered_count + 1
    if quotation == "" then
      (is_first and before_first or before_later)[name] = text
    else
      (is_first and before_first_string or before_later_string)[name] = text
    end
  end
  return text
end

-- Encoding -------------------------------------------------------------------------------------------------------------

-- Slots of the C stack of Lua: a container on the way down holds one, an object one more for its key.
local STACK_SLOTS_MAX = 8000 - 3

local function cannot(kind, reason)
  error("Cannot serialise " .. kind .. ": " .. reason)
end

-- A C cast of a double to int: what does not fit gives the smallest.
local function to_int(value)
  return value > 2147483647 and -2147483648 or value
end

-- The largest key of an array; -1 for an object (lua_array_length).
local function array_length(t, config)
  local largest, items = 0, 0
  for key in next, t do
    if type(key) ~= "number" or key < 1 or floor(key) ~= key then
      return -1
    end
    if key > largest then
      largest = to_int(key)
    end
    items = items + 1
  end
  local ratio = config.sparse_ratio
  if ratio > 0 and largest > items * ratio and largest > config.sparse_safe then
    if not config.sparse_convert then
      cannot("table", "excessively sparse array")
    end
    return -1
  end
  return largest
end

local parts, size
local small_numbers = {}

local function number_text(value, config)
  if value ~= value or value == huge or value == -huge then
    local mode = config.encode_invalid_numbers
    if mode == "off" then
      cannot("number", "must not be NaN or Inf")
    elseif mode == "null" then
      return "null"
    elseif value ~= value then
      return "nan"
    end
  elseif value > 0 and value <= 65535 and config.precision == 14 then
    local text = small_numbers[value]
    if not text then
      text = format("%.14g", value)
      if value == floor(value) then
        small_numbers[value] = text
      end
    end
    return text
  end
  return format(config.number_format, value)
end

local put_value

local function put_object(t, config, depth, slots)
  local is_first = true
  for key, value in next, t do
    local kind = type(key)
    if kind == "number" then
      key = number_text(key, config)
    elseif kind ~= "string" then
      cannot(kind, "table key must be a number or string")
    end
    kind = type(value)
    if kind == "string" and #value <= SHORT_BYTES_MAX and find(value, SAFE) then
      size = size + 1
      parts[size] = ((is_first and before_first_string or before_later_string)[key] or before(is_first, key, '"'))
        .. value .. '"'
    else
      size = size + 1
      parts[size] = (is_first and before_first or before_later)[key] or before(is_first, key, "")
      put_value(value, kind, config, depth, slots + 2)
    end
    is_first = false
  end
  size = size + 1
  parts[size] = is_first and "{}" or "}"
end

local function put_array(t, length, config, depth, slots)
  local lead = "["
  for i = 1, length do
    size = size + 1
    parts[size] = lead
    lead = ","
    local value = rawget(t, i)
    put_value(value, type(value), config, depth, slots + 1)
  end
  size = size + 1
  parts[size] = "]"
end

function put_value(value, kind, config, depth, slots)
  if kind == "table" then
    depth = depth + 1
    if depth > config.encode_max_depth or slots > STACK_SLOTS_MAX then
      error("Cannot serialise, excessive nesting (" .. depth .. ")")
    end
    local t = contents[value] or value
    local length = array_length(t, config)
    if length > 0 then
      return put_array(t, length, config, depth, slots)
    end
    return put_object(t, config, depth, slots)
  end
  size = size + 1
  if kind == "string" then
    parts[size] = quote(value)
  elseif kind == "number" then
    parts[size] = number_text(value, config)
  elseif kind == "boolean" then
    parts[size] = value and "true" or "false"
  elseif kind == "nil" or value == null then
    parts[size] = "null"
  else
    cannot(kind, "type not supported")
  end
end

-- Options (json_integer_option, json_enum_option) -----------------------------------------------------------------------

local INT_MAX = 2147483647

local function check_count(most, count)
  if count > most then
    bad_argument(most + 1, "found too many arguments")
  end
end

-- A new value of an option, which lasts beyond the run.
local function set(config, field, value)
  config[field] = value
  python.note_setting()
end

local function integer_option(config, field, value, number, low, high)
  if value ~= nil then
    value = check_int(value, number, number)
    if value < low or value > high then
      bad_argument(1, "expected integer between " .. low .. " and " .. format("%d", high))
    end
    set(config, field, value)
  end
  return config[field]
end

local function enum_option(value, number, options)
  if type(value) == "boolean" then
    return options[value and 2 or 1]
  end
  local text = match(check_string(value, number, number), "^[^%z]*") -- a C string
  for _, option in ipairs(options) do
    if option == text then
      return option
    end
  end
  bad_argument(number, "invalid option '" .. text .. "'")
end

local SWITCH = { "off", "on" }

local function switch_option(config, field, value, number)
  if value ~= nil then
    set(config, field, enum_option(value, number, SWITCH) == "on")
  end
  return config[field]
end

local function add_options(module, config)
  function module.encode_sparse_array(...)
    check_count(3, select("#", ...))
    local convert, ratio, safe = ...
    convert = switch_option(config, "sparse_convert", convert, 1)
    ratio = integer_option(config, "sparse_ratio", ratio, 2, 0, INT_MAX)
    return convert, ratio, integer_option(config, "sparse_safe", safe, 3, 0, INT_MAX)
  end

  function module.encode_max_depth(...)
    check_count(1, select("#", ...))
    return integer_option(config, "encode_max_depth", (...), 1, 1, INT_MAX)
  end

  function module.decode_max_depth(...)
    check_count(1, select("#", ...))
    return integer_option(config, "decode_max_depth", (...), 1, 1, INT_MAX)
  end

  function module.encode_number_precision(...)
    check_count(1, select("#", ...))
    local precision = integer_option(config, "precision", (...), 1, 1, 14)
    config.number_format = "%." .. precision .. "g"
    return precision
  end

  function module.encode_keep_buffer(...)
    check_count(1, select("#", ...))
    return switch_option(config, "keep_buffer", (...), 1)
  end

  function module.encode_invalid_numbers(...)
    check_count(1, select("#", ...))
    if (...) ~= nil then
      set(config, "encode_invalid_numbers", enum_option((...), 1, { "off", "on", "null" }))
    end
    local mode = config.encode_invalid_numbers
    if mode == "null" then
      return mode
    end
    return mode == "on"
  end

  function module.decode_invalid_numbers(...)
    check_count(1, select("#", ...))
    return switch_option(config, "decode_invalid_numbers", (...), 1)
  end
end

-- The module -------------------------------------------------------------------------------------------------------------

local function decoded(ok, first, ...)
  if not ok then
    error(first)
  elseif is_mark[first] then
    return tree(first, ...)
  end
  return first
end

local function new_module()
  local config = {
    sparse_convert = false, sparse_ratio = 2, sparse_safe = 10, encode_max_depth = 1000, decode_max_depth = 1000,
    precision = 14, number_format = "%.14g", keep_buffer = true, encode_invalid_numbers = "off",
    decode_invalid_numbers = true,
  }
  local module = { _NAME = "cjson", _VERSION = "2.1.0", null = null }
  local python_decode = python.decode
  add_options(module, config)

  function module.encode(...)
    if select("#", ...) ~= 1 then
      bad_argument(1, "expected 1 argument")
    end
    local value = ...
    if write_json and config.precision == 14 then
      local text = write_json(value, config.encode_max_depth, config.sparse_ratio, config.sparse_safe)
      if text then
        if #text > SHORT_BYTES_MAX then
          charge(#text / 2)
        end
        return text
      end
    end
    parts, size = {}, 0
    put_value(value, type(value), config, 0, 1)
    local text = concat(parts, "", 1, size)
    parts = nil
    return text
  end

  function module.decode(...)
    local count = select("#", ...)
    if count ~= 1 then
      bad_argument(1, "expected 1 argument")
    end
    local text = check_string((...), 1, count)
    if #text > SHORT_BYTES_MAX then
      charge(#text)
    end
    if read_json and config.decode_invalid_numbers then
      local done, value = read_json(text, config.decode_max_depth < 1000 and config.decode_max_depth or 1000)
      if done then
        return value
      end
    end
    spend_reading(#text)
    return decoded(python_decode(text, config.decode_max_depth, config.decode_invalid_numbers))
  end

  function module.new()
    return new_module()
  end

  return module
end

host.libraries.cjson = new_module()
host.cleaners[#host.cleaners + 1] = function()
  parts = nil
  forget()
end
