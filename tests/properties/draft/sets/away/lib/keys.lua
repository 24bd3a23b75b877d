local queue = KEYS[1]      -- zset: packet id by order of arrival
local bodies = KEYS[2]     -- hash: packet id -> payload
local meta = KEYS[3]       -- hash: last (packet id), order
