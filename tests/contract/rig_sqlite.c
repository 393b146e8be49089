/* SPDX-License-Identifier: MIT */
/* rig_sqlite.c - the contract for the store in a folder: its instances share
 * one, on real time. */
#include "contract.h"
#include "folder.h"

#include <stdlib.h>

static void begin(struct rig *r)
{
    struct folder *f = malloc(sizeof(*f));
    CHECK(f != NULL);
    folder_open(f);
    r->state = f;
}

static vow_store *open_one(struct rig *r)
{
    struct folder *f = r->state;
    VOW_AUTO(vow_future)
    opened = vow_store_sqlite_open(r->world.loop, f->path,
                                   VOW_SQLITE_OPTS(.value_max = RIG_VALUE_MAX));
    if (vow_state_of(opened) != VOW_FULFILLED)
        FAIL("%s", vow_error_message(vow_error_of(opened)));
    return vow_as_ptr(vow_get(opened));
}

static void end(struct rig *r)
{
    folder_close(r->state);
    free(r->state);
}

const struct rig_store rig_sqlite = {.name = "sqlite",
                                     .real_time = true,
                                     .begin = begin,
                                     .open = open_one,
                                     .end = end};
