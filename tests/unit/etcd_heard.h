/* SPDX-License-Identifier: MIT */
/* etcd_heard.h - a watch on "n/", and what it has told. */
#ifndef TEST_ETCD_HEARD_H
#define TEST_ETCD_HEARD_H

#include "harness.h"
#include "store/etcd/etcd_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LOG = 4096 };

/* What was told: "+n/a=1@5 -n/b@6 ?". */
struct heard {
    struct vow__watch *watch; /* NULL: closed */
    char log[LOG];
    unsigned puts, deletes, doubts;
    uint64_t last; /* revision */
    bool close_in_event, close_in_doubt;
};

__attribute__((format(printf, 2, 3))) static inline void
note(struct heard *h, const char *format, ...)
{
    size_t n = strlen(h->log);
    va_list args;
    va_start(args, format);
    vsnprintf(h->log + n, sizeof(h->log) - n, format, args);
    va_end(args);
}

static inline void heard_close(struct heard *h)
{
    struct vow__watch *w = h->watch;
    h->watch = NULL;
    vow__watch_close(w);
}

static inline void on_event(struct heard *h, const struct vow__kv *kv)
{
    CHECK(h->watch != NULL);
    CHECK(kv->mod >= h->last);
    h->last = kv->mod;
    if (h->close_in_event)
        heard_close(h);
}

static inline void on_put(const struct vow__kv *kv, void *user)
{
    struct heard *h = user;
    h->puts++;
    if (kv->size < 10)
        note(h, "+%s=%.*s@%" PRIu64 " ", kv->key, (int)kv->size, kv->value,
             kv->mod);
    on_event(h, kv);
}

static inline void on_delete(const struct vow__kv *kv, void *user)
{
    struct heard *h = user;
    h->deletes++;
    note(h, "-%s@%" PRIu64 " ", kv->key, kv->mod);
    on_event(h, kv);
}

static inline void on_doubt(void *user)
{
    struct heard *h = user;
    CHECK(h->watch != NULL);
    h->doubts++;
    h->last = 0; /* it may be another past */
    note(h, "? ");
    if (h->close_in_doubt)
        heard_close(h);
}

static inline int hear(struct vow__etcd *e, struct heard *h, uint64_t revision)
{
    struct vow__key tree = vow__key("n", NULL, "/");
    return vow__watch_open(e, &tree, revision,
                           &(const struct vow__watch_events){
                               .on_put = on_put,
                               .on_delete = on_delete,
                               .on_doubt = on_doubt,
                               .user = h,
                           },
                           &h->watch);
}

#endif
