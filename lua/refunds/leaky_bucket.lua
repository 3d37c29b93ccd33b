-- Gives back nothing of a leaky_bucket: those behind a request know their turns already.
--
-- Returns `back`, 0
-- Writes  nothing
local back = 0
