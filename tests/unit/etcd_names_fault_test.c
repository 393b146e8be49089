/* SPDX-License-Identifier: MIT */
/* etcd_names_fault_test.c - steps on names without memory: each is answered, an
 * error is one that the fault explains, and nothing is lost. */
#include "etcd_names_kit.h"

/* One member for all runs: each has names of its own. */
static struct etcd_kit *the_member(void)
{
    static struct etcd_kit member;
    static bool runs;
    if (!runs)
        etcd_start(&member, NULL);
    runs = true;
    return &member;
}

static void check(const struct names *n, struct answer a)
{
    if (a.code != 0 && !fault_fired(n->w))
        FAIL("code %d without a fault", a.code);
}

static struct names *begin(struct world *w, char name[32])
{
    static struct names n;
    static unsigned runs;
    names_begin(&n, w, the_member());
    snprintf(name, 32, "name %u", ++runs);
    return &n;
}

static bool opened(const struct names *n)
{
    return n->at[0].store != NULL && n->at[1].store != NULL;
}

FAULT_SWEEP(etcd_fault, a_run_that_somebody_waits_for, FAULT_ALLOC)
{
    char name[32];
    struct names *n = begin(w, name);
    if (opened(n)) {
        struct answer a = claim(n, 0, ASK(name, 1, .label = "l"));
        check(n, a);
        struct answer waits = claim(n, 1, ASK(name, 2));
        check(n, waits);
        check(n, pulse(n, 0, hold_of(name, 1, a.epoch), LONG_MS));
        if (a.epoch != 0)
            check(n, commit(n, 0, COMMIT(name, 1, a.epoch, .ttl_ms = 0), "x"));
        struct answer b = claim(n, 1, ASK(name, 2, .waited = waits.first));
        check(n, b);
        if (!fault_fired(w))
            CHECK_STR_EQ(b.value, "x");
    }
    names_end(n);
}

FAULT_SWEEP(etcd_fault, takeovers_until_it_is_given_up, FAULT_ALLOC)
{
    char name[32];
    struct names *n = begin(w, name);
    if (opened(n)) {
        check(n, claim(n, 0, ASK(name, 1, .lease_ms = 0)));
        check(n, claim(n, 1, ASK(name, 2, .lease_ms = 0, .takeovers = 1)));
        struct answer a = claim(n, 0, ASK(name, 3, .takeovers = 1));
        check(n, a);
        if (!fault_fired(w))
            CHECK(a.failed);
    }
    names_end(n);
}

FAULT_SWEEP(etcd_fault, looking_and_managing, FAULT_ALLOC)
{
    char name[32];
    struct names *n = begin(w, name);
    if (opened(n)) {
        struct answer a = claim(n, 0, ASK(name, 1));
        struct answer list = {.done = false};
        vow_store *s = n->at[1].store;
        check(n, a);
        check(n, cancel(n, 1, name));
        check(n, peek(n, 1, name));
        s->ops->list(s, on_records, &list);
        check(n, *await(n, &list));
        if (a.epoch != 0)
            check(n, commit(n, 0, COMMIT(name, 1, a.epoch), NULL));
        check(n, forget(n, 1, name, 0));
    }
    names_end(n);
}

FAULT_SWEEP(etcd_fault, chunks, FAULT_ALLOC)
{
    char name[32];
    struct names *n = begin(w, name);
    if (opened(n)) {
        struct answer a = claim(n, 0, ASK(name, 1));
        vow_hold hold = hold_of(name, 1, a.epoch == 0 ? 1 : a.epoch);
        VOW_AUTO(vow_bytes) chunk = NULL;
        check(n, a);
        if (vow_bytes_new(w->loop, "one", 3, &chunk) == 0) {
            struct answer b = {.done = false};
            vow_store *s = n->at[0].store;
            s->ops->write(s, &hold, 0, chunk, on_records, &b);
            check(n, *await(n, &b));
        }
        struct answer c = read_text(n, 1, hold);
        CHECK(c.code == VOW_ENOENT || c.code == 0 || fault_fired(w));
    }
    names_end(n);
}

/* One is given back in time, the other when the store is closed. */
FAULT_SWEEP(etcd_fault, claims_without_an_answer, FAULT_ALLOC)
{
    char name[32], last[64];
    struct names *n = begin(w, name);
    snprintf(last, sizeof(last), "%s, the last", name);
    if (opened(n)) {
        struct answer a;
        n->lose = 2;
        CHECK(claim(n, 0, ASK(name, 1, .mode = VOW_ONCE)).code < 0);
        n->lose = 0;
        world_advance_ms(w, 250);
        do {
            a = peek(n, 1, name);
            check(n, a);
        } while (a.status != VOW_STATUS_NONE && !fault_fired(w));
        n->lose = 2;
        a = claim(n, 0, ASK(last, 1, .mode = VOW_ONCE));
        CHECK(a.code < 0 || fault_fired(w));
        n->lose = 0;
    }
    names_end(n);
    CHECK(fault_fired(w) ||
          strstr(etcd_get(the_member(), whole_key("n", last, "/r")),
                 "vacant yes") != NULL);
}
