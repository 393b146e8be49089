/* SPDX-License-Identifier: MIT */
/* sqlite_crowd_test.c - processes that come and go in one folder, as commands
 * do: two hundred at once, and an owner that ends while others ask. */
#include "sqlite_kit.h"

enum { ROUNDS = 400, ASKERS = 8, CROWD = 200, STEPS = 10 };

struct rounds {
    atomic_uint owned;    /* names that have an owner, or had one */
    atomic_uint answered; /* askers that have an answer, of all rounds */
    atomic_uint wrong;    /* 1 and the status of an answer; 0: none */
};

static struct kit_answer ask_once(struct kit *k, const char *name,
                                  uint64_t token)
{
    vow_claim_request ask = kit_ask(name, token);
    ask.mode = VOW_ONCE;
    return kit_claim_as(k, &ask);
}

/* ---- an owner that ends -------------------------------------------------- */

/* Owns the name, settles it and ends, in order or all at once. */
static void settle_and_end(const char *folder, const char *name, bool in_order,
                           struct rounds *r)
{
    struct kit k;
    kit_open(&k, folder);
    struct kit_answer a = ask_once(&k, name, 1);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    atomic_fetch_add(&r->owned, 1);
    vow_commit_request commit = {.hold = {.name = vow_name_of(name),
                                          .token = kit_token(1),
                                          .epoch = a.epoch,
                                          .mode = VOW_ONCE},
                                 .outcome = VOW_OUTCOME_DONE,
                                 .ttl_ms = KIT_LONG_MS};
    k.store->ops->commit(k.store, &commit, kit_on_answer, &a);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    if (in_order)
        kit_close(&k);
    _exit(0);
}

/* Asks for each name until it is settled. */
static void ask_all_names(const char *folder, struct rounds *r, uint64_t token)
{
    struct kit k;
    kit_open(&k, folder);
    for (unsigned i = 0; i < ROUNDS; i++) {
        char name[16];
        struct kit_answer a;
        snprintf(name, sizeof(name), "n%u", i);
        kit_await(&r->owned, i + 1);
        do
            a = ask_once(&k, name, token++);
        while (a.status == VOW_STATUS_WAITING);
        if (a.status != VOW_STATUS_SETTLED)
            atomic_store(&r->wrong, 1 + a.status);
        atomic_fetch_add(&r->answered, 1);
    }
    kit_close(&k);
    _exit(0);
}

/* The death of a process is seen at once: a record that was read before the
 * commit of the dead is no proof of a doubt. More processes ask than there are
 * processors, so that some stand still between two looks. */
TEST(sqlite_crowd, who_settles_and_ends_while_others_ask_leaves_no_doubt)
{
    struct folder f;
    pid_t pids[ASKERS];
    struct rounds *r = kit_shared(sizeof(*r));
    folder_open(&f);
    for (unsigned i = 0; i < ASKERS; i++)
        if ((pids[i] = kit_child()) == 0)
            ask_all_names(f.path, r, 2 + 1000000 * i);
    for (unsigned i = 0; i < ROUNDS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "n%u", i);
        pid_t pid = kit_child();
        if (pid == 0)
            settle_and_end(f.path, name, i % 2 == 0, r);
        kit_wait(pid);
        kit_await(&r->answered, ASKERS * (i + 1));
        CHECK_UINT_EQ(atomic_load(&r->wrong), 0);
    }
    for (unsigned i = 0; i < ASKERS; i++)
        kit_wait(pids[i]);
    folder_close(&f);
}

/* ---- two hundred at once -------------------------------------------------- */

struct crowd {
    atomic_uint ready, go;
    atomic_uint served; /* steps of all */
    atomic_uint owners; /* of the common name */
};

/* Each claims a name of its own and one that all want, again and again. */
static void claim_in_crowd(const char *folder, struct crowd *c, unsigned i)
{
    struct kit k;
    char name[16];
    kit_open(&k, folder);
    snprintf(name, sizeof(name), "n%u", i);
    atomic_fetch_add(&c->ready, 1);
    kit_await(&c->go, 1);
    for (unsigned step = 0; step < STEPS; step++) {
        struct kit_answer a =
            kit_claim(&k, step == 0 ? "common" : name, 1 + 1000 * i + step);
        atomic_fetch_add(&c->served, 1);
        if (a.code != 0)
            FAIL("%u of %u: %d, %s", step, i, a.code, kit_why(&k));
        if (step == 0 && a.status == VOW_STATUS_OWNED)
            atomic_fetch_add(&c->owners, 1);
        if (step > 0) {
            CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
            a = kit_abandon(&k, name, 1 + 1000 * i + step, a.epoch);
            CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
        }
    }
    atomic_fetch_add(&c->ready, 1);
    kit_await(&c->go, 2); /* nobody ends before, or others would take over */
    kit_close(&k);
    _exit(0);
}

/* The order of turns is tested in sqlite_turn_test.c: how often a process is
 * overtaken here depends on the machine. */
TEST(sqlite_crowd, two_hundred_at_once_are_all_served)
{
    struct folder f;
    pid_t pids[CROWD];
    struct crowd *c = kit_shared(sizeof(*c));
    folder_open(&f);
    for (unsigned i = 0; i < CROWD; i++)
        if ((pids[i] = kit_child()) == 0)
            claim_in_crowd(f.path, c, i);
    kit_await(&c->ready, CROWD);
    atomic_store(&c->go, 1);
    kit_await(&c->ready, 2 * CROWD);
    CHECK_UINT_EQ(atomic_load(&c->owners), 1);
    atomic_store(&c->go, 2);
    for (unsigned i = 0; i < CROWD; i++)
        kit_wait(pids[i]);
    CHECK_UINT_EQ(atomic_load(&c->served), CROWD * STEPS);
    CHECK_UINT_EQ(kit_count(f.path, "live"), 0);
    folder_close(&f);
}
