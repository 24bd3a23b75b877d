-- Loading text, never bytecode.
--
-- The environment of a chunk is the stand-in of _G, so that assigning to a global is refused. A chunk without such an
-- assignment gets the table itself, which is faster to read; nothing that scripts have leads to it.

local host = ...
local python = host.python

local assert, collectgarbage, error, load, loadstring = assert, collectgarbage, error, load, loadstring
local setfenv, tostring, type, xpcall = setfenv, tostring, type, xpcall
local byte, concat, string_dump = string.byte, table.concat, string.dump
local check_abort, place_error, placed = host.check_abort, host.place_error, host.placed
local globals, host_functions = host.globals, host.functions

local function load_text(text, name)
  if byte(text, 1) == 27 then
    text = " " .. text
  end
  host.spend_steps(python.compile_steps(text))
  -- The parser of Lua 5.1 does not anchor the chunk's name: no collection may happen while it runs.
  collectgarbage("stop")
  local ok, f, message = xpcall(function()
    local f, message = loadstring(text, name)
    if not f then
      return nil, message
    end
    local dumped = string_dump(f)
    host.charge(#dumped * 2) -- as long as it takes to make it fit
    local bytecode, assigns_globals, problem = python.prepare(dumped)
    if problem then
      return nil, problem
    end
    f = bytecode and assert(loadstring(bytecode, name)) or f
    return setfenv(f, (assigns_globals or host.is_loading_library) and host.environment or globals)
  end, tostring)
  collectgarbage("restart")
  if not ok then
    return nil, f
  elseif f then
    return f
  end
  return nil, message
end

function globals.loadstring(...)
  local text, name = ...
  if type(text) == "number" then
    text = text .. ""
  end
  local name_kind = type(name)
  if type(text) ~= "string" or not (name == nil or name_kind == "string" or name_kind == "number") then
    return loadstring(...) -- raises
  end
  return load_text(text, name == nil and text or name .. "")
end

function globals.load(...)
  local reader, name = ...
  local name_kind = type(name)
  if type(reader) ~= "function" or not (name == nil or name_kind == "string" or name_kind == "number") then
    return load(...) -- raises
  end
  local pieces, size = {}, 0
  while true do
    local ok, piece = xpcall(reader, place_error)
    check_abort()
    if not ok then
      return nil, piece
    end
    local kind = type(piece)
    if piece == nil or piece == "" then
      break
    elseif kind ~= "string" and kind ~= "number" then
      return nil, (placed("host:0: reader function must return a string"))
    end
    size = size + 1
    pieces[size] = piece
  end
  return load_text(concat(pieces), name == nil and "=(load)" or name .. "")
end

function host.libraries.string.dump(...)
  if host_functions[(...)] then
    error("unable to dump given function")
  end
  return string_dump(...)
end

host.load_text = load_text
