/* SPDX-License-Identifier: MIT */
/* etcd_call_rig.h - calls and streams to members that say what the test wants,
 * and what became of them. */
#ifndef TEST_ETCD_CALL_RIG_H
#define TEST_ETCD_CALL_RIG_H

#include "etcd_members.h"
#include "store/etcd/etcd_call.h"
#include "vow/fiber.h"

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
    struct vow__etcd *etcd;
    struct vow__query query;
    struct vow__buf body;
};

static inline void call(struct vow__etcd *e, struct called *c,
                        const char *path);

static inline vow_next call_main(void *arg)
{
    struct called *c = arg;
    json_t *root = NULL;
    int code = vow__query_run(vow__etcd_calls(c->etcd), &c->query, &root);
    vow__buf_fini(&c->body);
    CHECK_UINT_EQ(c->told++, 0);
    CHECK((code == 0) == (root != NULL));
    c->code = code;
    c->revision = code == 0 ? vow__json_revision(root) : 0;
    json_decref(root);
    if (c->again)
        call(c->etcd, c->next, "kv/again");
    return vow_ok(vow_nothing());
}

/* On a fiber; without memory for one it ends at once. */
static inline void call_start(struct vow__etcd *e, struct called *c)
{
    c->etcd = e;
    c->query.body = &c->body;
    VOW_AUTO(vow_future) fiber = vow_async(vow__etcd_loop(e), call_main, c);
    CHECK_UINT_EQ(c->told, 0);
    if (vow_state_of(fiber) != VOW_REJECTED)
        return;
    vow__buf_fini(&c->body);
    c->told = 1;
    c->code = vow_error_code(vow_error_of(fiber));
    if (c->again)
        call(e, c->next, "kv/again");
}

/* What the call does is told in `c`, later. */
static inline void call(struct vow__etcd *e, struct called *c, const char *path)
{
    static const char *const safe[] = {"kv/range", "lease/keepalive",
                                       "maintenance/alarm",
                                       "cluster/member/list"};
    *c = (struct called){
        .again = c->again, .next = c->next, .query = {.path = path}};
    for (size_t i = 0; i < sizeof(safe) / sizeof(safe[0]); i++)
        c->query.safe |= strcmp(path, safe[i]) == 0;
    vow__etcd_buf_init(&c->body, vow__etcd_alloc(e));
    vow__buf_text(&c->body, "{\"key\":\"AA==\"}");
    call_start(e, c);
}

static inline void call_txn(struct vow__etcd *e, struct called *c,
                            struct vow__txn *t)
{
    *c = (struct called){
        .query = {.path = "kv/txn", .safe = !t->writes, .due_ns = t->due_ns}};
    vow__txn_body(t, &c->body);
    call_start(e, c);
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
