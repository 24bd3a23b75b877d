-- Builds a nested Lua value from the flat list of values that Python sends. A container is a mark (one of the functions
-- below), its size and its items; everything else stands for itself. Tables grow key by key as the server's do,
-- so that `pairs` and `cjson.encode` visit them in the server's order.

local host = ...
local python = host.python
local select = select

local values, size, position

local function hold(...)
  values, size, position = { ... }, select("#", ...), 0
end

local function take()
  if position == size then
    hold(python.more())
  end
  position = position + 1
  return values[position]
end

local build -- mark -> the function that builds it

local function take_value()
  local value = take()
  local make = build[value]
  if make then
    return make()
  end
  return value
end

local function array()
  local result = {}
  for i = 1, take() do
    local value = take()
    local make = build[value]
    if make then
      value = make()
    end
    result[i] = value
  end
  return result
end

-- A table whose keys are strings.
local function object()
  local result = {}
  for _ = 1, take() do
    local key, value
    local at = position
    if at + 2 <= size then
      key, value = values[at + 1], values[at + 2]
      position = at + 2
    else
      key, value = take(), take()
    end
    local make = build[value]
    if make then
      value = make()
    end
    result[key] = value
  end
  return result
end

-- The same with keys of any type.
local function table_()
  local result = {}
  for _ = 1, take() do
    local key = take_value()
    result[key] = take_value()
  end
  return result
end

local function map()
  return { map = table_() }
end

local function set()
  local members = {}
  for _ = 1, take() do
    members[take_value()] = true
  end
  return { set = members }
end

local function null()
  return nil
end

local function status()
  return { ok = take() }
end

local function failure()
  local err = {}
  err.err = take()
  err.ignore_error_stats_update = true
  return err
end

local function double()
  return { double = take() }
end

host.marks = {
  array = array, object = object, table = table_, map = map, set = set, null = null, status = status, failure = failure,
  double = double,
}
build = {}
for _, mark in pairs(host.marks) do
  build[mark] = mark
end

function host.tree(...)
  hold(...)
  local value = take_value()
  values = nil
  return value
end

host.cleaners[#host.cleaners + 1] = function()
  values = nil
end
