-- SPDX-License-Identifier: MIT
-- view.lua - `status`, what a claim of a stranger would find, of the fields `f`
-- of a record: s m e f a t d c l r L h; a lapsed lease is NONE. Part of scripts
-- that manage names.
local runs, over = f[1] == 'R', tonumber(f[7] or 0) <= now
local status = 0
if runs and not over then
    status = 2
elseif runs and f[2] == '2' then
    status = 4
elseif f[1] and not runs and not over and not f[12] then
    status = 3
end
