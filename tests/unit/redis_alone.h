/* SPDX-License-Identifier: MIT */
/* redis_alone.h - a store on Redis that never meets its server: for the parts
 * of it that need none. */
#ifndef TEST_REDIS_ALONE_H
#define TEST_REDIS_ALONE_H

#include "folder.h"
#include "store/redis/redis_names.h"
#include "world.h"

#include <stdio.h>
#include <string.h>

struct alone {
    struct world world;
    struct folder folder;
    vow_store *store;
    struct vow__redis *redis;
};

/* A store; `key` NULL: results are not sealed. */
static vow_store *alone_store(struct alone *a, const char *key)
{
    char url[128];
    char file[128];
    snprintf(url, sizeof(url), "unix:%s/none", a->folder.path);
    snprintf(file, sizeof(file), "%s/key", a->folder.path);
    if (key != NULL) {
        FILE *f = fopen(file, "w");
        CHECK(f != NULL);
        CHECK(fputs(key, f) >= 0);
        CHECK_INT_EQ(fclose(f), 0);
    }
    VOW_AUTO(vow_future)
    opened = vow_store_redis_open(
        a->world.loop, url,
        VOW_REDIS_OPTS(.seal_file = key == NULL ? NULL : file,
                       .value_max = 4096));
    if (vow_state_of(opened) != VOW_FULFILLED)
        FAIL("%s", vow_error_message(vow_error_of(opened)));
    return vow_as_ptr(vow_get(opened));
}

static void alone_open(struct alone *a, const char *key)
{
    world_open(&a->world);
    folder_open(&a->folder);
    a->store = alone_store(a, key);
    a->redis = vow__redis_of(a->store);
}

static void alone_end(struct alone *a, vow_store *s)
{
    VOW_AUTO(vow_future) closed = s->ops->close(s);
    CHECK_INT_EQ(vow_loop_run_until(a->world.loop, closed), 0);
}

static void alone_close(struct alone *a)
{
    alone_end(a, a->store);
    world_run(&a->world);
    folder_close(&a->folder);
    world_close(&a->world);
}

#endif
