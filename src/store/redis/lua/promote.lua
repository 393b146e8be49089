-- SPDX-License-Identifier: MIT
-- promote.lua - as refresher.lua, and stores what `owns` says: from now on, the
-- record `rec` is that of the owner. Part of scripts that may change names.
--@ refresher
if owns then
    call('HDEL', rec, 'g', 'v', 'c', 'x', 'n', 'b')
    call('HSET', rec, 's', 'R', 'e', f[3], 'f', f[3], 'a', '0', 't', f[6],
        'd', f[7], 'r', f[10], 'o', f[14], 'L', f[11], 'i', f[15])
    if f[16] then
        call('HSET', rec, 'x', 1)
    end
end
