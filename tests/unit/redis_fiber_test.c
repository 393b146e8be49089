/* SPDX-License-Identifier: MIT */
/* redis_fiber_test.c - steps of several requests: closed at every request,
 * without memory at every point, and in a process that was forked. */
#include "redis_route_rig.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIST, POOLS, EXAMINE, STEPS };

struct step {
    struct route_rig *rig;
    unsigned done;
    int code;
    bool closes; /* the answer closes the store */
};

static unsigned heard;        /* commands at the servers */
static unsigned keys_of_page; /* two pages */

static void step_done(struct step *s, int code)
{
    s->done++;
    s->code = code;
    if (s->closes)
        rig_close(s->rig);
}

static void on_records(int code, const vow_record *records, size_t n,
                       void *user)
{
    (void)records;
    CHECK_UINT_EQ(n, 0);
    step_done(user, code);
}

static void on_pools(int code, const vow_pool_info *pools, size_t n, void *user)
{
    (void)pools;
    CHECK_UINT_EQ(n, 0);
    step_done(user, code);
}

static void on_findings(int code, const vow_finding *findings, size_t n,
                        void *user)
{
    (void)findings;
    CHECK((code == 0) == (n > 0));
    step_done(user, code);
}

static void step_begin(struct route_rig *r, int step, struct step *s)
{
    vow_store *store = r->store;
    *s = (struct step){.rig = r, .closes = s->closes};
    if (step == LIST)
        store->ops->list(store, on_records, s);
    else if (step == POOLS)
        store->ops->pools(store, on_pools, s);
    else
        store->ops->examine(store, on_findings, s);
}

/* Two pages of keys; all names and pools are gone when they are asked for. */
static const char *say_pages(struct fake_conn *c, char **words, size_t n)
{
    static char text[64 * 1024];
    char name_text[VOW_NAME_TEXT];
    char *end = text + sizeof(text);
    char *at = text;
    (void)c;
    heard++;
    if (strcmp(words[0], "EVALSHA") == 0 && strstr(words[3], ":s:") != NULL)
        return "_\r\n";
    if (strcmp(words[0], "EVALSHA") == 0 && strcmp(words[2], "1") != 0) {
        size_t names = (size_t)strtoul(words[2], NULL, 10) / 2;
        at += snprintf(at, (size_t)(end - at), "*%zu\r\n:1\r\n", names + 1);
        for (size_t i = 0; i < names; i++)
            at += snprintf(at, (size_t)(end - at), "*2\r\n:0\r\n:0\r\n");
        return text;
    }
    if (strcmp(words[0], "SCAN") != 0 || n != 6)
        return NULL;
    bool first = strcmp(words[1], "0") == 0;
    CHECK(first || strcmp(words[1], "77") == 0);
    at += snprintf(at, (size_t)(end - at), "*2\r\n%s\r\n*%u\r\n",
                   first ? "$2\r\n77" : "$1\r\n0", keys_of_page);
    for (unsigned i = 0; i < keys_of_page; i++) {
        vow_name name = {.hash = {(uint8_t)i, first}};
        (void)vow_name_text(&name, name_text);
        at += snprintf(at, (size_t)(end - at), "+%.*s%s}\r\n",
                       (int)strlen(words[3]) - 1, words[3], name_text);
    }
    return text;
}

static void pages_begin(struct route_rig *r, unsigned keys)
{
    rig_begin(r, 1);
    r->fakes[0].answer = say_pages;
    heard = 0;
    keys_of_page = keys;
    rig_open(r);
}

/* ---- closing ------------------------------------------------------------- */

/* Returns whether the step was under way at the close. */
static bool close_at(int step, unsigned commands)
{
    struct route_rig r;
    struct step s = {.closes = false};
    pages_begin(&r, 3);
    step_begin(&r, step, &s);
    UNTIL(&r, heard >= commands || s.done > 0);
    bool early = s.done == 0;
    rig_end(&r);
    CHECK_UINT_EQ(s.done, 1);
    CHECK_INT_EQ(s.code, early ? VOW_ECLOSED : 0);
    return early;
}

TEST(redis_fiber, a_close_ends_a_step_at_every_request)
{
    for (int step = 0; step < STEPS; step++) {
        unsigned commands = 0;
        while (close_at(step, commands))
            commands++;
        CHECK(commands >= 7);
    }
}

TEST(redis_fiber, the_answer_of_a_step_may_close_the_store)
{
    for (int step = 0; step < STEPS; step++) {
        struct route_rig r;
        struct step s = {.closes = true};
        pages_begin(&r, 3);
        step_begin(&r, step, &s);
        UNTIL(&r, s.done > 0);
        CHECK_INT_EQ(s.code, 0);
        rig_end(&r);
        CHECK_UINT_EQ(s.done, 1);
    }
}

TEST(redis_fiber, a_closing_store_begins_no_step)
{
    struct route_rig r;
    struct step s = {.closes = false};
    pages_begin(&r, 3);
    rig_close(&r);
    for (int step = 0; step < STEPS; step++) {
        step_begin(&r, step, &s);
        CHECK_UINT_EQ(s.done, 1);
        CHECK_INT_EQ(s.code, VOW_ECLOSED);
    }
    rig_end(&r);
}

/* ---- many requests ------------------------------------------------------- */

TEST(redis_fiber, more_pools_than_are_asked_for_at_once_are_all_asked_for)
{
    struct route_rig r;
    struct step s = {.closes = false};
    pages_begin(&r, 150);
    rig_settle(&r);
    heard = 0;
    step_begin(&r, POOLS, &s);
    UNTIL(&r, s.done > 0);
    CHECK_INT_EQ(s.code, 0);
    CHECK_UINT_EQ(heard, 2 + 2 * 150);
    rig_end(&r);
}

/* ---- a child, and no memory ---------------------------------------------- */

TEST(redis_fiber, a_child_is_answered_at_once)
{
    struct route_rig r;
    struct step s = {.closes = false};
    pages_begin(&r, 3);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        bool right = true;
        for (int step = 0; step < STEPS; step++) {
            step_begin(&r, step, &s);
            right = right && s.done == 1 && s.code == VOW_ESTORE;
        }
        _exit(right ? 0 : 1);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT_EQ(status, 0);
    rig_end(&r);
}

/* redis_look_test.c does the same with an examination. */
FAULT_SWEEP(redis_fiber, lists_survive_every_fault, FAULT_ALLOC)
{
    static struct route_rig r;
    struct step s = {.closes = false};
    char url[64];
    memset(&r, 0, sizeof(r));
    r.w = w;
    r.n = 1;
    fake_open(&r.fakes[0]);
    r.fakes[0].answer = say_pages;
    keys_of_page = 3;
    snprintf(url, sizeof(url), "redis://127.0.0.1:%u", r.fakes[0].port);
    if (!rig_try_open(&r, url, NULL)) {
        fake_close(&r.fakes[0]);
        return;
    }
    for (int step = LIST; step <= POOLS; step++) {
        step_begin(&r, step, &s);
        while (s.done == 0)
            rig_pass(&r, 5);
        CHECK_UINT_EQ(s.done, 1);
        CHECK(s.code == 0 || fault_fired(w));
    }
    rig_end(&r);
}
