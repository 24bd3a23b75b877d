-- The library `bit` (Lua BitOp): 32-bit integers. The arithmetic is Python's, see callables.py.

local host = ...
local charge, check_number, python_bit = host.charge, host.check_number, host.python.bit
local select = select

local CROSSING = 40 -- instructions take as long as a call of Python

local function compute(...)
  charge(CROSSING)
  return (python_bit(...))
end

local bit = {}
host.libraries.bit = bit

for _, name in ipairs({ "tobit", "bnot", "bswap" }) do
  bit[name] = function(...)
    return compute(name, check_number((...), 1, select("#", ...)))
  end
end

for _, name in ipairs({ "lshift", "rshift", "arshift", "rol", "ror" }) do
  bit[name] = function(...)
    local count = select("#", ...)
    local value, distance = ...
    value = check_number(value, 1, count)
    return compute(name, value, check_number(distance, 2, count))
  end
end

for _, name in ipairs({ "band", "bor", "bxor" }) do
  bit[name] = function(...)
    local count = select("#", ...)
    local result = compute("tobit", check_number((...), 1, count))
    for i = count, 2, -1 do
      result = compute(name, result, check_number((select(i, ...)), i, count))
    end
    return result
  end
end

function bit.tohex(...)
  local count = select("#", ...)
  local value, digits = ...
  value = check_number(value, 1, count)
  return compute("tohex", value, count < 2 and 8 or check_number(digits, 2, count))
end
