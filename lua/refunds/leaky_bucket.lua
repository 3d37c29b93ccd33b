-- Gives back nothing of a leaky_bucket: the requests behind this one know their turns already.
--
-- Returns `given_back`, 0
-- Writes  nothing
local given_back = 0
