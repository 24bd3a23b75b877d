-- The library `struct`: C structures in strings. Formats are read by Python, see struct.py.

local host = ...
local python, bad_argument, wrong_type = host.python, host.bad_argument, host.wrong_type
local check_integer, check_string, spend_reading = host.check_integer, host.check_string, host.spend_reading
local error, select, type, unpack = error, select, type, unpack

local struct = {}
host.libraries.struct = struct

local function check_format(format, count)
  format = check_string(format, 1, count)
  spend_reading(#format)
  return format
end

-- What Python returns: false and the text of an error; false, an argument's number and its expected type or the text
-- of the complaint; else true and the results.
local function settle(arguments, count, ok, ...)
  if ok then
    return ...
  end
  local number, expected, complaint = ...
  if type(number) == "string" then
    error(number)
  elseif complaint then
    bad_argument(number, complaint)
  end
  wrong_type(number, expected, arguments[number], count)
end

function struct.pack(...)
  local count = select("#", ...)
  local format = check_format((...), count)
  local arguments = { ... }
  local plain = {}
  for i = 2, count do
    local value = arguments[i]
    local kind = type(value)
    if kind == "string" then
      host.spend_bytes(#value)
    end
    if kind == "number" and (value == 0 or value ~= value) then
      value = value .. "" -- Python would not see the sign
    end
    plain[i - 1] = (kind == "string" or kind == "number") and value
  end
  -- b_pack puts a nil behind the arguments: what is missing counts as nil.
  return settle(arguments, count + 1, python.struct_pack(format, unpack(plain, 1, count - 1)))
end

function struct.unpack(...)
  local count = select("#", ...)
  local format, data, offset = ...
  format, data = check_format(format, count), check_string(data, 2, count)
  offset = offset == nil and 1 or check_integer(offset, 3, count)
  if offset == 0 then -- unsigned there: a negative one is far beyond the data
    bad_argument(3, "offset must be 1 or greater")
  end
  return settle(nil, count, python.struct_unpack(format, data, offset))
end

function struct.size(...)
  local format = check_format((...), select("#", ...))
  return settle(nil, 1, python.struct_size(format))
end
