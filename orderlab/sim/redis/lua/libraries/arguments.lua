-- How the C libraries of Lua read their arguments (luaL_check... of lauxlib.c). The place and the name of the function
-- that the script called come in later, see `placed` in errors.lua.

local host = ...
local error, tonumber, type = error, tonumber, type
local floor, ceil, huge = math.floor, math.ceil, math.huge
local find, charge = string.find, host.charge

local FEW = 64 -- digits that are not counted

-- Before a number is read: a blank or a digit of it takes as long as an instruction, and other texts end at once.
local function charge_digits(text)
  if type(text) == "string" and #text > FEW and find(text, "^[%s%d%.%+%-nN]") then
    charge(#text)
  end
end

local function bad_argument(number, text)
  error("bad argument #" .. number .. " to '?' (" .. text .. ")")
end

local function wrong_type(number, expected, value, count)
  bad_argument(number, expected .. " expected, got " .. (number > count and "no value" or type(value)))
end

-- `count` is the number of arguments given.
local function check_number(value, number, count)
  local kind = type(value)
  charge_digits(value)
  local result = (kind == "number" or kind == "string") and tonumber(value)
  if not result then
    wrong_type(number, "number", value, count)
  end
  return result
end

-- A C cast of a double to a 64-bit integer; what does not fit gives the smallest.
local function to_integer(value)
  if value ~= value or value >= 9223372036854775808 or value < -9223372036854775808 then
    return -9223372036854775808
  end
  return value < 0 and ceil(value) or floor(value)
end

local function check_integer(value, number, count)
  return to_integer(check_number(value, number, count))
end

-- luaL_checkint: the low 32 bits, signed.
local function check_int(value, number, count)
  local low = check_integer(value, number, count) % 4294967296
  return low >= 2147483648 and low - 4294967296 or low
end

local function check_string(value, number, count)
  local kind = type(value)
  if kind == "number" then
    return value .. ""
  elseif kind ~= "string" then
    wrong_type(number, "string", value, count)
  end
  return value
end

-- lua_tonumber and a C cast to int, without a complaint: what is no number counts as 0, what does not fit is the smallest.
local function as_int(value)
  local kind = type(value)
  charge_digits(value)
  value = to_integer((kind == "number" or kind == "string") and tonumber(value) or 0)
  return value >= -2147483648 and value <= 2147483647 and value or -2147483648
end

host.as_int = as_int
host.bad_argument = bad_argument
host.wrong_type = wrong_type
host.charge_digits = charge_digits
host.check_number = check_number
host.check_integer = check_integer
host.check_int = check_int
host.check_string = check_string
