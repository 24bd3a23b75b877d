-- The library `cmsgpack` (lua-cmsgpack 0.4.0): MessagePack.

local host = ...
local python, contents, tree = host.python, host.contents, host.tree
local bad_argument, check_integer, check_string = host.bad_argument, host.check_integer, host.check_string
local error, next, rawget, select, type, unpack = error, next, rawget, select, type, unpack
local char, floor, huge, concat = string.char, math.floor, math.huge, table.concat

local charge = host.charge

local SHORT, BYTES_PER_INSTRUCTION = 1000, 64 -- of texts
local NESTING_MAX = 16
local ARGUMENTS_MAX = 4000 -- as many again must find room on the stack of a C function

local function big_endian(value, bytes)
  if bytes == 1 then
    return char(value % 256)
  end
  return big_endian(floor(value / 256), bytes - 1) .. char(value % 256)
end

local function head(value, small_tag, small_max, ...)
  if value <= small_max then
    return char(small_tag + value)
  end
  local tag8, tag16, tag32 = ...
  if tag8 and value <= 255 then
    return char(tag8, value)
  elseif value <= 65535 then
    return char(tag16) .. big_endian(value, 2)
  end
  return char(tag32) .. big_endian(value, 4)
end

local function number_text(value)
  if value ~= floor(value) or value == huge or value == -huge or value >= 9223372036854775808
      or value < -9223372036854775808 then
    return python.pack_double(value)
  elseif value >= 0 then
    if value <= 4294967295 then
      if value <= 127 then
        return char(value)
      elseif value <= 255 then
        return char(0xcc, value)
      end
      return value <= 65535 and char(0xcd) .. big_endian(value, 2) or char(0xce) .. big_endian(value, 4)
    end
    return char(0xcf) .. python.pack_integer(value)
  elseif value >= -32 then
    return char(256 + value)
  elseif value >= -128 then
    return char(0xd0, 256 + value)
  elseif value >= -32768 then
    return char(0xd1) .. big_endian(65536 + value, 2)
  elseif value >= -2147483648 then
    return char(0xd2) .. big_endian(4294967296 + value, 4)
  end
  return char(0xd3) .. python.pack_integer(value)
end

local parts, size

local function put(text)
  size = size + 1
  parts[size] = text
end

-- The number of items of an array, or nil for a map.
local function array_size(t)
  local count, largest = 0, 0
  for key in next, t do
    if type(key) ~= "number" or key <= 0 or key ~= floor(key) or key > 2147483647 then
      return nil
    end
    if key > largest then
      largest = key
    end
    count = count + 1
  end
  return largest == count and count or nil
end

local put_value

local function put_table(t, level)
  local count = array_size(t)
  if count then
    put(head(count, 0x90, 15, nil, 0xdc, 0xdd))
    for i = 1, count do
      put_value(rawget(t, i), level + 1)
    end
    return
  end
  count = 0
  for _ in next, t do
    count = count + 1
  end
  put(head(count, 0x80, 15, nil, 0xde, 0xdf))
  for key, value in next, t do
    put_value(key, level + 1)
    put_value(value, level + 1)
  end
end

function put_value(value, level)
  local kind = type(value)
  if kind == "string" then
    if #value > SHORT then
      charge(#value / BYTES_PER_INSTRUCTION)
    end
    put(head(#value, 0xa0, 31, 0xd9, 0xda, 0xdb))
    put(value)
  elseif kind == "number" then
    put(number_text(value))
  elseif kind == "boolean" then
    put(value and "\195" or "\194")
  elseif kind == "table" and level < NESTING_MAX then
    put_table(contents[value] or value, level)
  else
    put("\192")
  end
end

local cmsgpack = {
  _NAME = "cmsgpack",
  _VERSION = "lua-cmsgpack 0.4.0",
  _COPYRIGHT = "Copyright (C) 2012, Salvatore Sanfilippo",
  _DESCRIPTION = "MessagePack C implementation for Lua",
}
host.libraries.cmsgpack = cmsgpack

function cmsgpack.pack(...)
  local count = select("#", ...)
  if count == 0 then
    bad_argument(0, "MessagePack pack needs input.")
  elseif count > ARGUMENTS_MAX then
    bad_argument(0, "Too many arguments for MessagePack pack.")
  end
  local values = { ... }
  parts, size = {}, 0
  for i = 1, count do
    put_value(values[i], 0)
  end
  local text = concat(parts, "", 1, size)
  parts = nil
  return text
end

-- Python sends false and the text of an error (with "" in front when the place must not be shown), or the number of
-- values, the next offset, and an array of the values.
local function settle(with_offset, ok, problem, unplaced, ...)
  if not ok then
    error(problem, unplaced and 0 or 1)
  end
  local count, next_offset = problem, unplaced
  local values = tree(...)
  if with_offset then
    return next_offset, unpack(values, 1, count)
  end
  return unpack(values, 1, count)
end

local function unpack_full(data, limit, offset)
  host.spend_reading(#data)
  return settle(not (limit == 0 and offset == 0), python.msgpack_unpack(data, limit, offset))
end

function cmsgpack.unpack(...)
  return unpack_full(check_string((...), 1, select("#", ...)), 0, 0)
end

function cmsgpack.unpack_one(...)
  local count = select("#", ...)
  local data, offset = ...
  offset = offset == nil and 0 or check_integer(offset, 2, count)
  return unpack_full(check_string(data, 1, count), 1, offset)
end

function cmsgpack.unpack_limit(...)
  local count = select("#", ...)
  local data, limit, offset = ...
  limit = check_integer(limit, 2, count)
  offset = offset == nil and 0 or check_integer(offset, 3, count)
  return unpack_full(check_string(data, 1, count), limit, offset)
end

host.cleaners[#host.cleaners + 1] = function()
  parts = nil
end
