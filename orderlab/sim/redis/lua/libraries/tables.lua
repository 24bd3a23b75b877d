-- The library `table`, and `unpack`, where their C functions know no limit: what they walk through counts as instructions.

local host = ...

local collectgarbage, error, next, rawget, select = collectgarbage, error, next, rawget, select
local tonumber, type, unpack = tonumber, type, unpack
local getinfo = debug.getinfo
local charge_digits, check_int, wrong_type = host.charge_digits, host.check_int, host.wrong_type
local charge, contents, spend_bytes, spend_steps = host.charge, host.contents, host.spend_bytes, host.spend_steps
local library = host.libraries.table

local FEW = 1000 -- items below which nothing is counted
local READ_ONLY = "Attempt to modify a readonly table"

local INT_MAX = 2 ^ 31 - 1
local RESULTS_MAX = 8000
local CALM = 2 ^ 30 -- indices on this side of it do not overflow

-- luaB_unpack counts the results in an int, which overflows: it then writes beyond the stack.
function host.globals.unpack(...)
  local t, first, last = ...
  if (first ~= nil or last ~= nil) and type(t) == "table" then
    local count = select("#", ...)
    first = first == nil and 1 or check_int(first, 2, count)
    if last == nil then
      last = #t
    else
      last = check_int(last, 3, count)
    end
    if (first < -CALM or last > CALM) and last - first >= INT_MAX then
      error("too many results to unpack")
    end
    if last - first > FEW and last - first < RESULTS_MAX then
      charge(last - first)
    end
    return unpack(t, first, last)
  elseif type(t) == "table" then
    local count = #t
    if count > FEW and count < RESULTS_MAX then
      charge(count)
    end
  end
  return unpack(...)
end

local foreach, foreachi, insert, remove = table.foreach, table.foreachi, table.insert, table.remove

function library.insert(...)
  local t, position = ...
  local count = select("#", ...)
  if contents[t] then
    if count == 2 or count == 3 then
      error(READ_ONLY, 0)
    end
  elseif count == 3 and type(t) == "table" then
    local moved = #t + 1 - check_int(position, 2, count)
    if moved > FEW then
      spend_steps(moved * 4)
    end
  end
  return insert(...)
end

function library.remove(...)
  local t, position = ...
  if position ~= nil and type(t) == "table" then
    local size = #t
    if size > FEW then
      position = check_int(position, 2, select("#", ...))
      if position > 0 and size - position > FEW then
        spend_steps(size - position)
      end
    end
  end
  return remove(...)
end

local function check_table(t, count)
  if type(t) ~= "table" then
    wrong_type(1, "table", t, count)
  end
end

function library.maxn(...)
  local t = ...
  check_table(t, select("#", ...))
  local largest = 0
  for key in next, t do
    if type(key) == "number" and key > largest then
      largest = key
    end
  end
  return largest
end

function library.foreach(...)
  local t, f = ...
  check_table(t, select("#", ...))
  if type(f) ~= "function" then
    wrong_type(2, "function", f, select("#", ...))
  end
  if getinfo(f, "S").what == "C" then
    spend_steps(#t)
    return foreach(contents[t] or t, f)
  end
  for key, value in next, contents[t] or t do
    local result = f(key, value)
    if result ~= nil then
      return result
    end
  end
end

function library.foreachi(...)
  local t, f = ...
  check_table(t, select("#", ...))
  if type(f) ~= "function" then
    wrong_type(2, "function", f, select("#", ...))
  end
  if getinfo(f, "S").what == "C" then
    spend_steps(#t)
    return foreachi(t, f)
  end
  for i = 1, #t do
    local result = f(i, rawget(t, i))
    if result ~= nil then
      return result
    end
  end
end

local sort = table.sort
local COMPARED_UNCOUNTED_KILOBYTES = 4096 -- with more in memory, two strings may be long enough for their comparison to take long

local function is_less(a, b)
  return a < b
end

-- Whether all items are numbers, or all strings: then no comparison can fail.
local function are_alike(t, count)
  local kind = type(rawget(t, 1))
  if kind ~= "number" and kind ~= "string" then
    return false
  end
  for i = 2, count do
    if type(rawget(t, i)) ~= kind then
      return false
    end
  end
  return true
end

function library.sort(...)
  local t, less = ...
  if type(t) == "table" then
    local count = #t
    if count > FEW or collectgarbage("count") > COMPARED_UNCOUNTED_KILOBYTES then
      spend_steps(count)
      if less == nil then
        if count > 1 and are_alike(t, count) then
          return sort(t, is_less)
        end
      elseif type(less) == "function" and getinfo(less, "S").what == "C" then
        return sort(t, function(a, b)
          return (less(a, b))
        end)
      end
    end
  end
  return sort(...)
end

local concat = table.concat
local ITEM_BYTES, SHORT_LIST = 16, 64
local LONG_BYTES, BYTES_PER_INSTRUCTION = 65536, 64

function library.concat(...)
  local t, _, first, last = ...
  charge_digits(first)
  charge_digits(last)
  if type(t) == "table" then
    local items = (tonumber(last) or #t) - (tonumber(first) or 1)
    if items > LONG_BYTES / ITEM_BYTES then
      spend_bytes(#t * ITEM_BYTES)
    elseif items > SHORT_LIST then
      charge(items * ITEM_BYTES / BYTES_PER_INSTRUCTION)
    end
  end
  local text = concat(...)
  if #text > LONG_BYTES then
    spend_bytes(#text)
  elseif #text > FEW then
    charge(#text / BYTES_PER_INSTRUCTION)
  end
  return text
end
