-- SPDX-License-Identifier: MIT
-- release.lua - a place is given back, or the queue left.
--
-- KEYS  the pool's, see places.lua
-- ARGV  token
-- gives says (1 it was held, 2 it queued, 0 neither), fence, 0, 0, c, r, w,
--       time
--@ places
local p = open(1)
if not p.there or not p.known then
    return answer(p, 0)
end
reap(p)
local s = find(p, ARGV[1])
if s then
    drop(p, ARGV[1], s)
end
grant(p)
save(p, 0)
return answer(p, s and (s.held and 1 or 2) or 0, s)
