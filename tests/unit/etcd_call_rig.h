/* SPDX-License-Identifier: MIT */
/* etcd_call_rig.h - calls and streams to members that say what the test wants,
 * and what became of them. */
#ifndef TEST_ETCD_CALL_RIG_H
#define TEST_ETCD_CALL_RIG_H

#include "etcd_members.h"
#include "store/etcd/etcd_call.h"

#include <stdio.h>
#include <string.h>

#define CHECK_HAS(text, part)                                                  \
    do {                                                                       \
        const char *text_ = (text);                                            \
        if (strstr(text_, (part)) == NULL)                                     \
            FAIL("no \"%s\" in \"%s\"", (part), text_);                        \
    } while (0)

/* What the store says of its last trouble; only within a test's `m`. */
#define WHY(m) vow__etcd_explain((m)->store)

struct called {
    unsigned told;
    int code;
    uint64_t revision;
    bool again; /* call once more when told */
    struct called *next;
};

static inline void on_called(struct vow__etcd *e, int code, const json_t *root,
                             void *user);

/* What the call does is told in `c`, later. */
static inline void call(struct vow__etcd *e, struct called *c, const char *path)
{
    struct vow__jot body;
    *c = (struct called){.again = c->again, .next = c->next};
    vow__jot_init(&body, vow__etcd_alloc(e));
    vow__jot_text(&body, "{\"key\":\"AA==\"}");
    vow__etcd_call(e, path, &body, on_called, c);
    CHECK_UINT_EQ(c->told, 0);
}

static inline void on_called(struct vow__etcd *e, int code, const json_t *root,
                             void *user)
{
    struct called *c = user;
    CHECK_UINT_EQ(c->told++, 0);
    CHECK((code == 0) == (root != NULL));
    c->code = code;
    c->revision = code == 0 ? vow__json_revision(root) : 0;
    if (c->again)
        call(e, c->next, "kv/again");
}

/* Call, and wait for what comes of it. */
static inline int call_now(struct members *m, struct called *c)
{
    call(m->etcd, c, "kv/txn");
    MEMBERS_UNTIL(m, c->told);
    return c->code;
}

static inline const char *say_yes(struct members *m, size_t member,
                                  const char *path, const char *body)
{
    (void)m;
    (void)member;
    (void)path;
    (void)body;
    return "200 {\"header\":{\"revision\":\"7\"}}";
}

/* m->user is what all of them say. */
static inline const char *say_that(struct members *m, size_t member,
                                   const char *path, const char *body)
{
    (void)member;
    (void)path;
    (void)body;
    return m->user;
}

#endif
