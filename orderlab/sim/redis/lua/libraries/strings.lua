-- The library `string` where its C functions know no limit: what they copy counts, and a pattern that could go back over a long text
-- again and again is gone through before, by a function of C that counts its steps (patterns.h). Without machine code it is matched by a copy of
-- lstrlib.c's matcher below, whose steps are counted like all others.

local host = ...

local error, select, tonumber, type = error, select, tonumber, type
local byte, char, concat, find, match, sub = string.byte, string.char, table.concat, string.find, string.match, string.sub
local unpack = unpack
local check_int, check_integer, check_string = host.check_int, host.check_integer, host.check_string
local charge, charge_digits, spend_steps = host.charge, host.charge_digits, host.spend_steps
local bad_argument, check_memory, spend_bytes = host.bad_argument, host.check_memory, host.spend_bytes
local python_find = host.python.find
local library = host.libraries.string

local LONG = 65536 -- bytes from which on it counts what a call is given, whatever it does with them
local SCANNED = 2048 -- from which on it counts what it walks through
local FEW = 64 -- bytes, arguments, results
local COPIED, TRIED = 64, 32 -- bytes are copied, or a pattern tried at them, in the time of an instruction
local MATCHING = 32 -- bytes are copied in the time in which a pattern is tried at one

-- The matcher ---------------------------------------------------------------------------------------------------------

local CAPTURES_MAX = 32
local UNFINISHED, POSITION = -1, -2
local ESCAPE, CARET, DOLLAR, OPEN, CLOSE, BRACKET = 37, 94, 36, 40, 41, 91
local STAR, PLUS, MINUS, QUESTION = 42, 43, 45, 63

local SETS_MAX = 1000
local sets, set_count = {}, 0

-- The bytes that one item of a pattern matches, asked of the library itself.
local function set_of(item)
  local set = sets[item]
  if not set then
    if set_count == SETS_MAX then
      sets, set_count = {}, 0
    end
    set = {}
    local pattern = item == "$" and "^[$]" or "^" .. item
    for code = 0, 255 do
      set[code] = find(char(code), pattern) ~= nil
    end
    sets[item], set_count = set, set_count + 1
  end
  return set
end

-- Where the item ends that begins at `at`.
local function item_end(pattern, at)
  local first = byte(pattern, at)
  at = at + 1
  if first == ESCAPE then
    if not byte(pattern, at) then
      error("malformed pattern (ends with '%')")
    end
    return at + 1
  elseif first ~= BRACKET then
    return at
  end
  if byte(pattern, at) == CARET then
    at = at + 1
  end
  repeat
    local code = byte(pattern, at)
    if not code then
      error("malformed pattern (missing ']')")
    end
    at = at + 1
    if code == ESCAPE and byte(pattern, at) then
      at = at + 1
    end
  until byte(pattern, at) == 93
  return at + 1
end

-- Functions `try(start)`: the end of the match that begins there, or nil; and `capture(i, from, to)` and `captures(from, to)` of
-- the last match. `pattern` has no anchor.
local function matcher(text, pattern)
  local last = #text
  local starts, lengths, level = {}, {}, 0
  local items = {} -- where an item begins -> its set; the same for where it ends
  local ends = {}

  local function item_at(at)
    local behind = item_end(pattern, at)
    local set = set_of(sub(pattern, at, behind - 1))
    items[at], ends[at] = set, behind
    return set
  end

  local function balance(s, p)
    local open, close = byte(pattern, p), byte(pattern, p + 1)
    if not open or not close then
      error("unbalanced pattern")
    end
    if byte(text, s) ~= open then
      return nil
    end
    local depth = 1
    for at = s + 1, last do
      local code = byte(text, at)
      if code == close then
        depth = depth - 1
        if depth == 0 then
          return at + 1
        end
      elseif code == open then
        depth = depth + 1
      end
    end
    return nil
  end

  local function again(s, digit)
    local i = digit - 48
    if i < 1 or i > level or lengths[i] == UNFINISHED then
      error("invalid capture index")
    end
    local length = lengths[i]
    if length >= 0 and last - s + 1 >= length then
      spend_bytes(length)
      if sub(text, starts[i], starts[i] + length - 1) == sub(text, s, s + length - 1) then
        return s + length
      end
    end
    return nil
  end

  local function try(s, p)
    while true do
      local code = byte(pattern, p)
      local following
      if code == nil then
        return s
      elseif code == OPEN then
        if level >= CAPTURES_MAX then
          error("too many captures")
        end
        local is_position = byte(pattern, p + 1) == CLOSE
        level = level + 1
        starts[level], lengths[level] = s, is_position and POSITION or UNFINISHED
        local found = try(s, is_position and p + 2 or p + 1)
        if not found then
          level = level - 1
        end
        return found
      elseif code == CLOSE then
        local open = level
        while open > 0 and lengths[open] ~= UNFINISHED do
          open = open - 1
        end
        if open == 0 then
          error("invalid pattern capture")
        end
        lengths[open] = s - starts[open]
        local found = try(s, p + 1)
        if not found then
          lengths[open] = UNFINISHED
        end
        return found
      elseif code == DOLLAR and not byte(pattern, p + 1) then
        return s == last + 1 and s or nil
      elseif code == ESCAPE then
        following = byte(pattern, p + 1)
      end
      if following == 98 then -- %b
        s = balance(s, p + 2)
        if not s then
          return nil
        end
        p = p + 4
      elseif following == 102 then -- %f
        p = p + 2
        if byte(pattern, p) ~= BRACKET then
          error("missing '[' after '%f' in pattern")
        end
        local set = items[p] or item_at(p)
        if set[s > 1 and byte(text, s - 1) or 0] or not set[byte(text, s) or 0] then
          return nil
        end
        p = ends[p]
      elseif following and following >= 48 and following <= 57 then
        s = again(s, following)
        if not s then
          return nil
        end
        p = p + 2
      else
        local set = items[p] or item_at(p)
        local behind = ends[p]
        local suffix = byte(pattern, behind)
        if suffix == STAR or suffix == PLUS then
          local at = s
          while set[byte(text, at)] do
            at = at + 1
          end
          for to = at, suffix == PLUS and s + 1 or s, -1 do
            local found = try(to, behind + 1)
            if found then
              return found
            end
          end
          return nil
        elseif suffix == MINUS then
          while true do
            local found = try(s, behind + 1)
            if found then
              return found
            elseif not set[byte(text, s)] then
              return nil
            end
            s = s + 1
          end
        elseif suffix == QUESTION then
          if set[byte(text, s)] then
            local found = try(s + 1, behind + 1)
            if found then
              return found
            end
          end
          p = behind + 1
        elseif set[byte(text, s)] then
          s, p = s + 1, behind
        else
          return nil
        end
      end
    end
  end

  local function capture(i, from, to)
    if i > level then
      if i ~= 1 then
        error("invalid capture index")
      end
      return sub(text, from, to - 1)
    elseif lengths[i] == UNFINISHED then
      error("unfinished capture")
    elseif lengths[i] == POSITION then
      return starts[i]
    end
    return sub(text, starts[i], starts[i] + lengths[i] - 1)
  end

  local function captures(from, to)
    local found = {}
    local count = (level == 0 and from) and 1 or level
    for i = 1, count do
      found[i] = capture(i, from, to)
    end
    return unpack(found, 1, count)
  end

  return function(start)
    level = 0
    return try(start, 1)
  end, capture, captures
end

-- As far as lstrlib.c reads a pattern: to its first NUL; without the anchor, and whether it has one.
local function read_pattern(pattern)
  pattern = match(pattern, "^[^%z]*")
  if byte(pattern, 1) == CARET then
    return sub(pattern, 2), true
  end
  return pattern, false
end

local function look(is_find, ...)
  local count = select("#", ...)
  local text, pattern, from = ...
  text, pattern = check_string(text, 1, count), check_string(pattern, 2, count)
  from = from == nil and 1 or check_integer(from, 3, count)
  if from < 0 then
    from = from + #text + 1
  end
  from = from < 1 and 1 or from > #text and #text + 1 or from
  local bare, is_anchored = read_pattern(pattern)
  local try, _, captures = matcher(text, bare)
  for start = from, is_anchored and from or #text + 1 do
    local behind = try(start)
    if behind and is_find then
      return start, behind - 1, captures()
    elseif behind then
      return captures(start, behind)
    end
  end
  return nil
end

local counting = {}

function counting.find(...)
  return look(true, ...)
end

function counting.match(...)
  return look(false, ...)
end

function counting.gmatch(...)
  local count = select("#", ...)
  local text, pattern = ...
  text, pattern = check_string(text, 1, count), match(check_string(pattern, 2, count), "^[^%z]*")
  local try, _, captures = matcher(text, pattern)
  local at = 1
  return function()
    for start = at, #text + 1 do
      local behind = try(start)
      if behind then
        at = behind == start and behind + 1 or behind
        return captures(start, behind)
      end
    end
    at = #text + 2
  end
end

-- What stands for the match from `from` to `to` in the result of gsub.
local function expand(replacement, capture, from, to)
  local parts, size, at = {}, 0, 1
  while at <= #replacement do
    local code = byte(replacement, at)
    local stop = find(replacement, "%", at, true)
    size = size + 1
    if code ~= ESCAPE then
      parts[size] = sub(replacement, at, stop and stop - 1 or #replacement)
      at = stop or #replacement + 1
    else
      local digit = byte(replacement, at + 1) or 0
      if digit < 48 or digit > 57 then
        parts[size] = char(digit)
      elseif digit == 48 then
        parts[size] = sub(capture.text, from, to - 1)
      else
        parts[size] = capture.get(digit - 48, from, to)
      end
      at = at + 2
    end
  end
  return concat(parts)
end

function counting.gsub(...)
  local count = select("#", ...)
  local text, pattern, replacement, most = ...
  text, pattern = check_string(text, 1, count), check_string(pattern, 2, count)
  local kind = type(replacement)
  most = most == nil and #text + 1 or check_int(most, 4, count)
  if kind == "number" then
    replacement, kind = replacement .. "", "string"
  elseif kind ~= "string" and kind ~= "table" and kind ~= "function" then
    bad_argument(3, "string/function/table expected")
  end
  local bare, is_anchored = read_pattern(pattern)
  local try, get, captures = matcher(text, bare)
  local capture = { get = get, text = text }
  local parts, size, bytes, replaced, at = {}, 0, 0, 0, 1
  while replaced < most do
    local behind = try(at)
    if behind then
      replaced = replaced + 1
      local value
      if kind == "string" then
        value = expand(replacement, capture, at, behind)
      elseif kind == "table" then
        value = replacement[get(1, at, behind)]
      else
        value = replacement(captures(at, behind))
      end
      if not value then
        value = sub(text, at, behind - 1)
      elseif type(value) ~= "string" and type(value) ~= "number" then
        error("invalid replacement value (a " .. type(value) .. ")")
      end
      size = size + 1
      parts[size] = value
      bytes = bytes + #(value .. "")
      check_memory(bytes)
    end
    if behind and behind > at then
      at = behind
    elseif at <= #text then
      size = size + 1
      parts[size] = sub(text, at, at)
      at = at + 1
    else
      break
    end
    if is_anchored then
      break
    end
  end
  parts[size + 1] = sub(text, at)
  return concat(parts), replaced
end

-- Which one matches -----------------------------------------------------------------------------------------------------

-- A pattern's items nest on the C stack, one frame an item: lstrlib.c of Lua 5.1 has no limit of its own.
local PATTERN_BYTES_MAX = 10000
local count_pattern = host.count_pattern
local STEPS_MAX = count_pattern and 300 or 2e7 -- of the library's matcher at worst, uncounted
local STEPS_PER_INSTRUCTION = 4
local SPECIALS = "[%^%$%*%+%?%.%(%[%%%-]"

-- Ways in which `repeats` items can share a text, at each of its places unless the pattern is anchored.
local function steps(length, repeats, is_anchored)
  local ways = is_anchored and 1 or length + 1
  for i = 1, repeats do
    ways = ways * (length + i) / i
  end
  return ways
end

-- Whether what repeats before `at` can end at one place only: what follows is a byte that is none of its class, or the end of the text.
local function ends_at_one_place(pattern, at, class)
  local following, behind = match(pattern, "^[()]*([^()^$*+?.%[%%-])([*+?-]?)", at + 1)
  if following then
    return behind == "" and not find(following, class)
  end
  return find(pattern, "^[()]*%$$", at + 1) ~= nil
end

-- The longest text that the library's own matcher may get for `pattern`: one for which even the worst of them takes few steps. What
-- repeats at the very end of a pattern never goes back.
local function longest_text(pattern)
  pattern = match(pattern, "^[^%z]*")
  local repeats, doubles, at = 0, 1, 1
  local is_walk, class, class_behind = false, nil, 0 -- one that ends at one place only walks over the text, and all of them together do so once
  while true do
    at = find(pattern, "[%*%+%-%?%%]", at)
    if not at then
      break
    end
    local code, following = byte(pattern, at, at + 1)
    if code == QUESTION then
      doubles = doubles * 2
    elseif code ~= ESCAPE then
      if class_behind == at and ends_at_one_place(pattern, at, class) then
        is_walk = true
      else
        repeats = repeats + 1
      end
    elseif following and (following == 98 or following >= 48 and following <= 57) then
      repeats = repeats + 1
    elseif find(pattern, "^[acdlpsuwxACDLPSUWX]", at + 1) then
      class, class_behind = sub(pattern, at, at + 1), at + 2
    end
    at = at + (code == ESCAPE and 2 or 1)
  end
  if repeats == 0 and doubles == 1 and not is_walk then
    return 2 ^ 53
  elseif repeats > 0 and find(pattern, "[^%%][%*%+%-]%)*$") and not find(pattern, "%%[%*%+%-]%)*$") then
    repeats = repeats - 1
  end
  repeats = repeats + (is_walk and 1 or 0)
  local is_anchored = byte(pattern, 1) == CARET
  local low, high = 0, 2 ^ 27
  while low < high do
    local middle = (low + high + 1 - (low + high + 1) % 2) / 2
    if steps(middle, repeats, is_anchored) * doubles <= STEPS_MAX * (repeats == 0 and 128 or 1) then
      low = middle
    else
      high = middle - 1
    end
  end
  return low
end

local VETTED_MAX = 1000
local vetted, vetted_count = {}, 0

local function vet(pattern)
  if #pattern > PATTERN_BYTES_MAX and match(pattern, SPECIALS) then
    error("pattern too complex")
  end
  local longest = longest_text(pattern)
  if #pattern <= 100 then
    if vetted_count == VETTED_MAX then
      vetted, vetted_count = {}, 0
    end
    vetted[pattern] = longest
    vetted_count = vetted_count + 1
  end
  return longest
end

local PLAIN_STEPS_MAX = 1e6
local HUGE = math.huge

-- As lmemfind of lstrlib.c, in time that grows with the sum of the lengths.
local function find_plain(...)
  local count = select("#", ...)
  local text, wanted, from = ...
  from = from == nil and 1 or check_integer(from, 3, count)
  if from < 0 then
    from = from + #text + 1
  end
  from = from < 1 and 1 or from > #text and #text + 1 or from
  spend_bytes((#text + #wanted) * MATCHING)
  local at = python_find(text, wanted, from - 1)
  if at < 0 then
    return nil
  end
  return at + 1, at + #wanted
end

-- What a pattern walks through in a text of `length` bytes, from the place that a script names.
local function charge_walk(length, from, stop)
  from = tonumber(from) or 1
  if from < 0 then
    from = from + length + 1
  end
  local walked = (stop or length) - (from > 1 and from or 1)
  if walked > SCANNED then
    charge(walked / TRIED)
  end
end

local function found(length, from, ...)
  local _, stop = ...
  charge_walk(length, from, stop)
  return ...
end

local function matched(text, from, start, stop, ...)
  charge_walk(#text, from, stop)
  if start and select("#", ...) == 0 then
    return sub(text, start, stop)
  elseif start then
    return ...
  end
  return nil
end

-- As `f` of string.find, match, gmatch and gsub does it.
local function walk(name, f, ...)
  local text, pattern, from = ...
  local length = #text
  charge_digits(from)
  if name == "gsub" then
    if length > SCANNED and length <= LONG then
      charge(length / (byte(pattern, 1) == CARET and COPIED or TRIED))
    end
    local result, count = f(...)
    if #result > SCANNED then
      charge(#result / COPIED)
    end
    return result, count
  elseif length <= SCANNED or length > LONG then
    return f(...)
  elseif name == "find" then
    return found(length, from, f(...))
  elseif name == "match" and not find(pattern, "%z") then
    return matched(text, from, find(text, pattern, from))
  end
  charge(length / TRIED)
  return f(...)
end

-- What the library's matcher will do, before it does it.
local function spend_pattern(name, ...)
  local text, pattern, from, most = ...
  local is_search, matches = name == "find" or name == "match", HUGE
  charge_digits(from)
  charge_digits(most)
  if is_search then
    matches = 1
  elseif name == "gsub" and most ~= nil then
    matches = tonumber(most) or 0
  end
  local steps_max = host.instructions_left() * STEPS_PER_INSTRUCTION
  local steps = count_pattern(text, pattern, is_search and tonumber(from) or 1, matches, name ~= "gmatch", steps_max)
  local spend = steps > STEPS_MAX and spend_steps or charge -- the clock is dear
  spend(steps / STEPS_PER_INSTRUCTION)
end

local function counted(name, f)
  local slow, is_find = counting[name], name == "find"
  return function(...)
    local text, pattern, _, is_plain = ...
    if type(text) ~= "string" or type(pattern) ~= "string" then
      if type(pattern) == "number" and type(text) == "string" then
        pattern = pattern .. ""
      else
        return f(...) -- raises, or matches a number: short
      end
    end
    local length = #text
    if length > LONG then
      spend_bytes(length * MATCHING)
    end
    if is_find and #pattern > 16 and length * #pattern > PLAIN_STEPS_MAX
        and (is_plain or not find(match(pattern, "^[^%z]*"), SPECIALS)) then
      return find_plain(...)
    elseif is_find and is_plain then
      return walk(name, f, ...)
    end
    if length > (vetted[pattern] or vet(pattern)) then
      if not count_pattern then
        return slow(...)
      end
      spend_pattern(name, ...)
    end
    return walk(name, f, ...)
  end
end

for _, name in ipairs({ "find", "gmatch", "gsub", "match" }) do
  library[name] = counted(name, string[name])
end

-- What copies -----------------------------------------------------------------------------------------------------------

local function charge_long(size)
  if size > LONG then
    spend_bytes(size)
  else
    charge(size / COPIED)
  end
end

local function with_length(f)
  return function(...)
    local text = ...
    if type(text) == "string" and #text > SCANNED then
      charge_long(#text)
    end
    return f(...)
  end
end

for _, name in ipairs({ "lower", "reverse", "upper" }) do
  library[name] = with_length(string[name])
end

-- What takes long although little is given or comes back -----------------------------------------------------------------

local RESULTS_MAX = 8000
local FORMATTED_PER_NUMBER = 420 -- characters that one number can take
local format = string.format

-- `f`, or `counted` where there are so many arguments and one of them, from the place `first` on, is long, or there are many. C looks faster.
local function gate(f, counted, least, charge_result, first)
  local gated = host.gate and host.gate(f, counted, least, charge_result, first or 1) or counted
  host.functions[gated] = true
  return gated
end

local function count_bytes(...)
  local text, first, last = ...
  charge_digits(first)
  charge_digits(last)
  if last ~= nil and type(text) == "string" and #text > FEW then
    local size, from, to = #text, tonumber(first) or 1, tonumber(last) or 1
    from, to = from < 0 and from + size + 1 or from, to < 0 and to + size + 1 or to
    local results = (to < size and to or size) - (from > 1 and from or 1)
    if results > FEW and results < RESULTS_MAX then
      charge(results / 4)
    end
  end
  return byte(...)
end

-- `f` of which the arguments from `first` to `last` (without it: all) are numbers.
local function counting_numbers(f, first, last)
  return function(...)
    local count = select("#", ...)
    if count > FEW then
      charge(count / 4)
    end
    local arguments = { ... }
    for i = first, last or count do
      charge_digits(arguments[i])
    end
    return f(...)
  end
end

for _, name in ipairs({ "abs", "acos", "asin", "atan", "atan2", "ceil", "cos", "cosh", "deg", "exp", "floor", "fmod", "frexp", "ldexp",
  "log", "log10", "max", "min", "mod", "modf", "pow", "rad", "sin", "sinh", "sqrt", "tan", "tanh" }) do
  local f = math[name]
  host.libraries.math[name] = f and gate(f, counting_numbers(f, 1), 1)
end
library.char = gate(char, counting_numbers(char, 1), 1)
host.globals.select = gate(select, counting_numbers(select, 1, 1), 1)

local function charge_copy(size)
  charge(size / COPIED)
end

local sub_numbers = counting_numbers(sub, 2)

local function count_sub(...)
  local text = sub_numbers(...)
  if #text > FEW then
    charge_copy(#text)
  end
  return text
end

library.sub = gate(sub, count_sub, 2, charge_copy, 2)

library.byte = gate(byte, count_bytes, 3)

local function count_formatted(...)
  local pattern = ...
  local quotes = type(pattern) == "string" and find(pattern, "%%%d*q")
  local numbers = type(pattern) == "string" and find(pattern, "%%[^%%sq]*[cdiouxXeEfgG]")
  if quotes or numbers then
    local arguments = { ... }
    for i = 2, select("#", ...) do
      local text = arguments[i]
      if numbers then
        charge_digits(text)
      end
      if quotes and type(text) == "string" and #text > FEW then
        check_memory(#text)
        charge(#text)
      end
    end
  end
  local text = format(...)
  if #text > FEW then
    local numbers = (select("#", ...) - 1) * FORMATTED_PER_NUMBER
    charge(#text / 64 + (numbers < #text and numbers or #text))
  end
  return text
end

library.format = gate(format, count_formatted, 1, function(size) charge(size) end)

-- A digit of a long number takes as long as an instruction.
local function count_digits(...)
  local text = ...
  if type(text) == "string" and #text > FEW then
    charge(#text)
  end
  return tonumber(...)
end

host.globals.tonumber = gate(tonumber, count_digits, 1)

local INTEGERS = 2 ^ 32 -- the count is a C int
local rep = string.rep

function library.rep(...)
  local text, given = ...
  local count = tonumber(given)
  if count ~= given then
    charge_digits(given)
  end
  if count and type(text) == "string" then
    count = count % INTEGERS
    if text == "" then
      return ""
    elseif count < INTEGERS / 2 and #text * count > SCANNED then
      check_memory(#text * count)
      charge_long(#text * count)
    end
  end
  return rep(...)
end
