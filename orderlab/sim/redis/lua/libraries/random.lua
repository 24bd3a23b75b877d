-- math.random and math.randomseed as Redis replaces them (redis_math_random): one lrand48 sequence for all scripts of a
-- server, which begins anew only with the process.

local host = ...
local python, bad_argument, charge, check_int = host.python, host.bad_argument, host.charge, host.check_int
local error, floor, select = error, math.floor, select

local function signed_32(value)
  value = value % 4294967296
  return value >= 2147483648 and value - 4294967296 or value
end

function host.libraries.math.random(...)
  local count = select("#", ...)
  charge(40) -- as long as crossing into Python takes
  local drawn = python.random()
  if count == 0 then
    return drawn
  end
  local low, high = ...
  if count == 1 then
    high = check_int(low, 1, count)
    if high < 1 then
      bad_argument(1, "interval is empty")
    end
    return floor(drawn * high) + 1
  elseif count ~= 2 then
    error("wrong number of arguments")
  end
  low = check_int(low, 1, count)
  high = check_int(high, 2, count)
  if low > high then
    bad_argument(2, "interval is empty")
  end
  return floor(drawn * signed_32(high - low + 1)) + low
end

function host.libraries.math.randomseed(...)
  python.seed_random(check_int((...), 1, select("#", ...)))
end
