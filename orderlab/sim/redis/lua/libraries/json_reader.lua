-- Reads JSON quickly, or gives up: what it cannot vouch for (\u escapes, NUL bytes, odd numbers, anything malformed) is
-- left to lua_json.py, which follows lua-cjson byte by byte and words its errors. For texts that this reader accepts both
-- give the same value.

local host = ...
local byte, find, gsub, match, sub = string.byte, string.find, string.gsub, string.match, string.sub
local huge, tonumber = math.huge, tonumber

local SPACE = { [9] = true, [10] = true, [13] = true, [32] = true }
local UNESCAPED = { ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\8", f = "\12", n = "\10", r = "\13", t = "\9" }
local QUOTE, COMMA, COLON, OPEN_ARRAY, CLOSE_ARRAY, OPEN_OBJECT, CLOSE_OBJECT = 34, 44, 58, 91, 93, 123, 125

local text
local backslash -- where the next one stands
-- JSON null: a null pointer on the server, equal only to itself.
local null = newproxy(true)
getmetatable(null).__tostring = function()
  return "userdata: (nil)"
end
host.null = null

-- The functions below take a position and return a value and the position after it; no position means giving up.

local function skip_space(at)
  local char = byte(text, at)
  while SPACE[char] do
    at = at + 1
    char = byte(text, at)
  end
  return char, at
end

local function escaped_string(at, last)
  local from = at + 1
  repeat
    if last == backslash + 1 then
      last = find(text, '"', last + 1, true)
      if not last then
        return nil
      end
    end
    backslash = find(text, "\\", backslash + 2, true) or huge
  until backslash > last
  local raw = sub(text, from, last - 1)
  if find(raw, '\\[^"\\/bfnrt]') then
    return nil
  end
  return (gsub(raw, "\\(.)", UNESCAPED)), last + 1
end

local function string_at(at)
  local last = find(text, '"', at + 1, true)
  if not last then
    return nil
  elseif backslash < last then
    return escaped_string(at, last)
  end
  return sub(text, at + 1, last - 1), last + 1
end

local value_at

local function object_at(at, depth_left)
  local result = {}
  local char
  char, at = skip_space(at)
  if char == CLOSE_OBJECT then
    return result, at + 1
  end
  while char == QUOTE do
    local value
    local key, quotation, after = match(text, '^"([%w_]*)":("?)()', at) -- by far the most frequent
    if key then
      at = after
      char = quotation == "" and byte(text, at) or QUOTE
    else
      key, at = string_at(at)
      if not at then
        return nil
      end
      char, at = skip_space(at)
      if char ~= COLON then
        return nil
      end
      char = byte(text, at + 1)
      at = at + (char == QUOTE and 2 or 1)
    end
    if char == QUOTE then -- `at` is behind it
      local last = find(text, '"', at, true)
      if last and last < backslash then
        value, at = sub(text, at, last - 1), last + 1
      else
        value, at = string_at(at - 1)
      end
    else
      if SPACE[char] then
        char, at = skip_space(at)
      end
      value, at = value_at(char, at, depth_left)
    end
    if not at then
      return nil
    end
    result[key] = value
    char = byte(text, at)
    if SPACE[char] then
      char, at = skip_space(at)
    end
    if char == CLOSE_OBJECT then
      return result, at + 1
    elseif char ~= COMMA then
      return nil
    end
    at = at + 1
    char = byte(text, at)
    if SPACE[char] then
      char, at = skip_space(at)
    end
  end
end

local function array_at(at, depth_left)
  local result, count = {}, 0
  local char
  char, at = skip_space(at)
  if char == CLOSE_ARRAY then
    return result, at + 1
  end
  while true do
    local value
    value, at = value_at(char, at, depth_left)
    if not at then
      return nil
    end
    count = count + 1
    result[count] = value
    char, at = skip_space(at)
    if char == CLOSE_ARRAY then
      return result, at + 1
    elseif char ~= COMMA then
      return nil
    end
    char, at = skip_space(at + 1)
  end
end

function value_at(char, at, depth_left)
  if char == QUOTE then
    return string_at(at)
  elseif char == OPEN_OBJECT then
    if depth_left == 0 then
      return nil
    end
    return object_at(at + 1, depth_left - 1)
  elseif char == OPEN_ARRAY then
    if depth_left == 0 then
      return nil
    end
    return array_at(at + 1, depth_left - 1)
  end
  local number = match(text, "^%-?%d[%d.eE+-]*", at)
  if number then
    local value = tonumber(number)
    return value, value and at + #number
  end
  local word = match(text, "^%l+", at)
  if word == "true" then
    return true, at + 4
  elseif word == "false" then
    return false, at + 5
  elseif word == "null" then
    return null, at + 4
  end
end

-- Whether `json` was read, and its value.
function host.read_json(json, depth_max)
  if find(json, "\0", 1, true) then
    return false
  end
  text = json
  backslash = find(json, "\\", 1, true) or huge
  local char, at = skip_space(1)
  local value
  value, at = value_at(char, at, depth_max)
  local done = at and not find(json, "[^ \t\r\n]", at)
  text = nil
  return done, value
end

host.cleaners[#host.cleaners + 1] = function()
  text = nil
end

-- The same in machine code, where there is any. What the one gives up on the other may read: to the same value.
if host.open_json then
  local read, write = host.open_json(null, host.contents)
  host.read_json, host.write_json = read or host.read_json, write
end
