-- SPDX-License-Identifier: MIT
-- refresher.lua - the refresher of a record, of the field g, as `fresh`: epoch,
-- since, end, lease, state (R runs, X asked to stop, F failed), channel, and
-- the token with the runner behind it. If the result has expired, the refresher
-- is the owner, as `owns`, and `f` is the record of the owner. Needs `f`: s m e
-- f a t d c l r L h g o, and then i and x as far as the script reads these.
-- Part of scripts about names.
local fresh, owns
if f[13] then
    fresh = {string.match(f[13],
        '^(%d+) (%d+) (%d+) (%d+) (%a) (%S+) (.*)$')}
    if not fresh[7] then -- no refresher of ours
        fresh = nil
    elseif fresh[5] ~= 'F' and tonumber(f[7]) <= now then
        fresh, owns = nil, fresh
        f = {'R', f[2], owns[1], owns[1], '0', owns[2], owns[3], '0', f[9],
            string.sub(owns[7], 17), owns[4], false, false,
            string.sub(owns[7], 1, 16), owns[6], owns[5] == 'X' and '1'}
    end
end
