/* SPDX-License-Identifier: MIT */
/* etcd_hold_test.c - what holding names on etcd costs, and how much may be
 * kept there: one lease and one pulse for all names of a process, results to
 * the last byte that is allowed and elsewhere above it, looking, canceling and
 * forgetting from other processes, and keys below the prefix that somebody else
 * wrote. */
#include "etcd_process.h"

#include <sodium.h>

#define PROC(...) (&(const struct proc_job){__VA_ARGS__})
#define SEAT_OPTS VOW_AUTHORITY(.lease_ms = HELD_MS, .recheck_ms = RARELY_MS)

/* For what is waited for until its lease ends. */
#define SHORT_OPTS VOW_AUTHORITY(.lease_ms = 3000, .recheck_ms = RARELY_MS)

static struct town r;
static struct seat a, b;

/* ---- one lease, one pulse ------------------------------------------------ */

enum { NAMES = 40 };

/* The names from this one on. */
static void take_all(struct seat *s, struct turn *t, size_t from, size_t to,
                     uint64_t lease)
{
    for (size_t i = from; i < to; i++) {
        char text[32];
        (void)snprintf(text, sizeof(text), "%llu-%zu",
                       (unsigned long long)lease, i);
        turn_take(&r, s, &t[i], text,
                  VOW_SHARE(.mode = (uint32_t)(i % 3), .lease_ms = lease));
        CHECK_INT_EQ(t[i].code, 0);
    }
}

static void settle_all(struct turn *t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        CHECK(t[i].lease != NULL);
        CHECK(vow_lease_left_ms(t[i].lease) > 0);
        CHECK_INT_EQ(turn_say(&r, &t[i], "x"), 0);
        turn_drop(&t[i]);
    }
}

TEST(etcd_hold, all_names_of_a_process_hang_on_one_lease)
{
    static struct turn t[NAMES], waits[NAMES];
    town_open(&r, NULL);
    seat_open(&r, &a, r.k.url, SEAT_OPTS);
    seat_open(&r, &b, r.k.url, SEAT_OPTS);
    /* Besides that which is pulsed there are those that last, of what stays
     * when its owner dies: also some few for all names. */
    take_all(&a, t, 0, 3, 30000);
    unsigned few = town_leases(&r);
    CHECK(few <= 3);
    take_all(&a, t, 3, NAMES, 30000);
    CHECK_UINT_EQ(town_leases(&r), few);
    take_all(&b, waits, 0, NAMES, 30000);
    CHECK(town_leases(&r) <= 2 * few);
    settle_all(t, NAMES);
    for (size_t i = 0; i < NAMES; i++) {
        CHECK_INT_EQ(turn_hears(&r, &waits[i], "x"), 0);
        turn_drop(&waits[i]);
    }
    seat_close(&r, &b);
    seat_close(&r, &a);
    town_close(&r);
}

TEST(etcd_hold, each_length_of_a_lease_is_one)
{
    static struct turn t[2][NAMES / 2];
    town_open(&r, NULL);
    seat_open(&r, &a, r.k.url, SEAT_OPTS);
    take_all(&a, t[0], 0, NAMES / 2, 30000);
    unsigned few = town_leases(&r);
    take_all(&a, t[1], 0, NAMES / 2, 60000);
    CHECK_UINT_EQ(town_leases(&r), few + 1);
    settle_all(t[0], NAMES / 2);
    settle_all(t[1], NAMES / 2);
    seat_close(&r, &a);
    town_close(&r);
}

/* Longer than a lease, by messages that do not depend on how many names. */
TEST(etcd_hold, one_pulse_keeps_all_names)
{
    enum { LEASE_MS = 10000, PULSE_MS = 1000 };
    static struct turn t[NAMES];
    town_open(&r, NULL);
    seat_open(&r, &a, r.k.url,
              VOW_AUTHORITY(.lease_ms = LEASE_MS, .pulse_ms = PULSE_MS));
    take_all(&a, t, 0, NAMES, LEASE_MS);
    town_pass(&r, 2 * PULSE_MS); /* one that was just taken is asked for */
    unsigned few = town_leases(&r);
    uint64_t pulses = town_asked(&r, "LeaseKeepAlive");
    uint64_t steps = town_asked(&r, "Txn") + town_asked(&r, "Range");
    uint64_t since = town_ms(&r);
    town_pass(&r, LEASE_MS + LATE_MS);
    uint64_t most = 2 * ((town_ms(&r) - since) / PULSE_MS + 1);
    pulses = town_asked(&r, "LeaseKeepAlive") - pulses;
    steps = town_asked(&r, "Txn") + town_asked(&r, "Range") - steps;
    CHECK(pulses >= 2);
    CHECK(pulses <= most);
    CHECK(steps <= most);
    CHECK(town_leases(&r) <= few);
    CHECK_UINT_EQ(atomic_load(&a.told[VOW_EVENT_LOST]), 0);
    settle_all(t, NAMES);
    seat_close(&r, &a);
    town_close(&r);
}

/* Which is then told, and not before, though others of the same process and
 * length are pulsed. */
TEST(etcd_hold, a_name_that_nobody_pulses_is_lost)
{
    struct turn t, next, kept;
    town_open(&r, NULL);
    seat_open(&r, &a, r.k.url, SEAT_OPTS);
    seat_open(&r, &b, r.k.url, SEAT_OPTS);
    uint64_t since = town_ms(&r);
    turn_take(&r, &a, &t, "by hand",
              VOW_SHARE(.mode = VOW_FENCED, .lease_ms = 10000,
                        .flags = VOW_SHARE_MANUAL_PULSE));
    CHECK(t.code == 0 && t.lease != NULL);
    turn_take(&r, &a, &kept, "kept",
              VOW_SHARE(.mode = VOW_FENCED, .lease_ms = 10000));
    CHECK(kept.code == 0 && kept.lease != NULL);
    turn_take(&r, &b, &next, "by hand",
              VOW_SHARE(.mode = VOW_FENCED, .takeovers = 100));
    CHECK(next.code == 0 && next.lease == NULL);
    CHECK_INT_EQ(town_until(&r, vow_lease_lost(t.lease)), VOW_ELOST);
    (void)vow_cancel(t.result, NULL); /* it would ask again */
    TOWN_UNTIL(&r, next.lease != NULL);
    CHECK(town_ms(&r) - since >= 10000);
    CHECK(vow_lease_fence(next.lease) > vow_lease_fence(t.lease));
    CHECK_INT_EQ(turn_say(&r, &next, "y"), 0);
    CHECK_INT_EQ(turn_say(&r, &kept, "z"), 0);
    turn_drop(&t);
    turn_drop(&next);
    turn_drop(&kept);
    seat_close(&r, &b);
    seat_close(&r, &a);
    town_close(&r);
}

/* ---- sizes --------------------------------------------------------------- */

enum { LIMIT = 64 * 1024 };

static vow_bytes *pattern(size_t size)
{
    vow_bytes *bytes = NULL;
    CHECK_INT_EQ(vow_bytes_new(r.w.loop, NULL, size, &bytes), 0);
    for (size_t i = 0; i < size; i++)
        vow_bytes_data(bytes)[i] = (unsigned char)(i * 31 + (i >> 8));
    return bytes;
}

struct big {
    size_t size;
    unsigned runs;
};

static vow_future *make_big(vow_lease *lease, void *arg)
{
    struct big *big = arg;
    (void)lease;
    big->runs++;
    return vow_resolved(r.w.loop, vow_bytes_value(pattern(big->size)));
}

/* Ask for a result of this size; the code, and why in `why`. */
static int share_big(struct seat *s, struct big *big, uint32_t mode, char *why)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "big-%zu-%u", big->size, mode);
    vow_name name = vow_name_of(text);
    VOW_AUTO(vow_future)
    f = vow_share(s->a, &name, make_big, big,
                  VOW_SHARE(.mode = mode, .ttl_ms = 60000));
    int rc = vow_loop_run_until(r.w.loop, f);
    (void)snprintf(why, 512, "%s", vow_error_message(vow_error_of(f)));
    if (rc != 0)
        return rc;
    VOW_AUTO(vow_bytes) want = pattern(big->size);
    vow_bytes *got = vow_as_bytes(vow_get(f));
    CHECK(got != NULL || big->size == 0);
    CHECK_UINT_EQ(got == NULL ? 0 : vow_bytes_size(got), big->size);
    if (got != NULL)
        CHECK_MEM_EQ(vow_bytes_data(got), vow_bytes_data(want), big->size);
    return rc;
}

TEST(etcd_hold, a_result_of_64_KiB_is_kept_and_one_byte_more_not)
{
    const size_t sizes[] = {0,         1,    255, 16 * 1024, 16 * 1024 + 1,
                            LIMIT - 1, LIMIT};
    char why[512];
    town_open(&r, NULL);
    seat_open(&r, &a, r.k.url, SEAT_OPTS);
    seat_open(&r, &b, r.k.url, SEAT_OPTS);
    for (uint32_t mode = VOW_SHARED; mode <= VOW_ONCE; mode++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            struct big big = {.size = sizes[i]};
            CHECK_INT_EQ(share_big(&a, &big, mode, why), 0);
            CHECK_INT_EQ(share_big(&b, &big, mode, why), 0);
            CHECK_UINT_EQ(big.runs, 1);
        }
        struct big big = {.size = LIMIT + 1};
        CHECK_INT_EQ(share_big(&a, &big, mode, why), VOW_E2BIG);
        if (strstr(why, "results") == NULL)
            FAIL("it names no option: %s", why);
    }
    seat_close(&r, &b);
    seat_close(&r, &a);
    town_close(&r);
}

TEST(etcd_hold, longer_results_go_where_the_address_says)
{
    static struct folder folder;
    const size_t sizes[] = {LIMIT, LIMIT + 1, 1024 * 1024, 8 * 1024 * 1024};
    char options[160], why[512];
    folder_open(&folder);
    town_open(&r, NULL);
    (void)snprintf(options, sizeof(options), "?results=file:%s&timeout=30000",
                   folder.path);
    seat_open(&r, &a, town_url(&r, options), SEAT_OPTS);
    seat_open(&r, &b, town_url(&r, options), SEAT_OPTS);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct big big = {.size = sizes[i]};
        int rc = share_big(&a, &big, VOW_FENCED, why);
        if (rc != 0)
            FAIL("%zu bytes: %d %s", sizes[i], rc, why);
        CHECK_INT_EQ(share_big(&b, &big, VOW_FENCED, why), 0);
        CHECK_UINT_EQ(big.runs, 1);
    }
    seat_close(&r, &b);
    seat_close(&r, &a);
    town_close(&r);
    folder_close(&folder);
}

/* Somebody who has not got the option cannot read it: told, not made up. */
TEST(etcd_hold, a_result_elsewhere_is_not_taken_for_another)
{
    static struct folder folder;
    char options[160], why[512];
    folder_open(&folder);
    town_open(&r, NULL);
    (void)snprintf(options, sizeof(options), "?results=file:%s&timeout=30000",
                   folder.path);
    seat_open(&r, &a, town_url(&r, options), SEAT_OPTS);
    seat_open(&r, &b, r.k.url, SEAT_OPTS);
    struct big big = {.size = LIMIT + 1};
    CHECK_INT_EQ(share_big(&a, &big, VOW_ONCE, why), 0);
    CHECK_UINT_EQ(big.runs, 1);
    CHECK(share_big(&b, &big, VOW_ONCE, why) != 0);
    CHECK(why[0] != 0);
    CHECK_UINT_EQ(big.runs, 1); /* ONCE: it did happen */
    CHECK_INT_EQ(share_big(&a, &big, VOW_ONCE, why), 0);
    CHECK_UINT_EQ(big.runs, 1);
    seat_close(&r, &b);
    seat_close(&r, &a);
    town_close(&r);
    folder_close(&folder);
}

/* ---- from elsewhere ------------------------------------------------------ */

/* Work that ends when it is canceled. */
static vow_future *never(vow_lease *lease, void *fence)
{
    *(uint64_t *)fence = vow_lease_fence(lease);
    return vow_delay(r.w.loop, 3600 * 1000);
}

TEST(etcd_hold, who_is_elsewhere_can_cancel_look_and_forget)
{
    struct turn waits;
    struct task t = {.r = &r, .text = "y"};
    vow_name name = vow_name_of("n");
    uint64_t fence = 0;
    town_open(&r, NULL);
    seat_open(&r, &a, r.k.url, SEAT_OPTS);
    seat_open(&r, &b, r.k.url, SEAT_OPTS);
    CHECK_INT_EQ(town_until(&r, vow_authority_cancel(b.a, &name)), VOW_ENOENT);
    vow_future *runs = vow_share(a.a, &name, never, &fence,
                                 VOW_SHARE(.mode = VOW_FENCED, .label = "me"));
    TOWN_UNTIL(&r, fence != 0);
    turn_take(&r, &b, &waits, "n", VOW_SHARE(.mode = VOW_FENCED));
    CHECK(waits.code == 0 && waits.lease == NULL);
    vow_record seen = seat_peek(&r, &b, &name);
    CHECK_UINT_EQ(seen.status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(seen.epoch, fence);
    CHECK_INT_EQ(town_until(&r, vow_authority_forget(b.a, &name, 0)),
                 VOW_EBUSY);
    CHECK_INT_EQ(town_until(&r, vow_authority_cancel(b.a, &name)), 0);
    CHECK_INT_EQ(turn_hears(&r, &waits, ""), VOW_ECANCELED);
    CHECK_INT_EQ(town_until(&r, runs), VOW_ECANCELED);
    turn_drop(&waits);
    CHECK_INT_EQ(task_share(&b, &t, "n", "y", VOW_SHARE(.ttl_ms = 60000)), 0);
    CHECK_UINT_EQ(t.runs, 1);
    VOW_AUTO(vow_future) other = vow_authority_forget(a.a, &name, t.fence + 1);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, other), 0);
    CHECK_INT_EQ(vow_as_int(vow_get(other)), 0);
    CHECK_UINT_EQ(seat_peek(&r, &a, &name).status, VOW_STATUS_SETTLED);
    VOW_AUTO(vow_future) gone = vow_authority_forget(a.a, &name, t.fence);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, gone), 0);
    CHECK_INT_EQ(vow_as_int(vow_get(gone)), 1);
    CHECK_UINT_EQ(seat_peek(&r, &b, &name).status, VOW_STATUS_NONE);
    other = vow_future_unref(other);
    gone = vow_future_unref(gone);
    seat_close(&r, &b);
    seat_close(&r, &a);
    town_close(&r);
}

/* Nothing is left at etcd but what was asked to stay. */
TEST(etcd_hold, keys_do_not_pile_up)
{
    struct task t = {.r = &r, .text = "y"};
    town_open(&r, NULL);
    seat_open(&r, &a, r.k.url, SEAT_OPTS);
    for (int i = 0; i < 30; i++) {
        char text[16];
        (void)snprintf(text, sizeof(text), "n-%d", i);
        CHECK_INT_EQ(task_share(&a, &t, text, "y",
                                VOW_SHARE(.mode = VOW_ONCE, .ttl_ms = 1)),
                     0);
    }
    seat_close(&r, &a);
    for (int i = 0; etcd_count(&r.k, "vow/") > 0; i++) {
        if (i == 1200)
            FAIL("%llu keys stay",
                 (unsigned long long)etcd_count(&r.k, "vow/"));
        town_pass(&r, 100);
    }
    town_close(&r);
}

/* ---- keys of others ------------------------------------------------------ */

/* The keys below the prefix, decoded; how many. */
static size_t keys_there(char (*keys)[256], size_t room)
{
    static char said[64 * 1024];
    size_t n = 0;
    (void)snprintf(said, sizeof(said), "%s",
                   etcd_say(&r.k, "kv/range", "%s",
                            "{\"key\":\"dm93Lw==\",\"range_end\":\"dm93MA==\","
                            "\"keys_only\":true}"));
    for (char *at = said; n < room && (at = strstr(at, "\"key\":\"")) != NULL;
         n++) {
        size_t size = 0;
        at += strlen("\"key\":\"");
        CHECK(sodium_base642bin((unsigned char *)keys[n], 255, at,
                                strcspn(at, "\""), NULL, &size, NULL,
                                sodium_base64_VARIANT_ORIGINAL) == 0);
        keys[n][size] = 0;
    }
    return n;
}

static const char *const garbage[] = {
    "x",
    "{}",
    "[]",
    "null",
    "{\"",
    "-1",
    "99999999999999999999999",
    "\x01\x02\x03\xff",
    "{\"a\":{\"a\":{\"a\":[1,2,{\"a\":null}]}}}"};

/* Whatever the answer is: there is one, in time, and the next name is fine. */
static void use_it(struct seat *s, const char *text)
{
    struct task t = {.r = &r, .text = "x"};
    vow_name name = vow_name_of(text);
    VOW_AUTO(vow_future)
    f = vow_share(
        s->a, &name, task_run, &t,
        VOW_SHARE(.mode = VOW_FENCED, .deadline_ms = 8000, .ttl_ms = 60000));
    int rc = vow_loop_run_until(r.w.loop, f);
    CHECK(vow_state_of(f) != VOW_PENDING);
    if (rc != 0)
        CHECK(vow_error_message(vow_error_of(f))[0] != 0);
    (void)town_until(&r, vow_authority_peek(s->a, &name, 1));
    (void)town_until(&r, vow_authority_forget(s->a, &name, 0));
    (void)town_until(&r, vow_authority_list(s->a));
    (void)town_until(&r, vow_authority_pools(s->a));
    struct task other = {.r = &r, .text = "fine"};
    CHECK_INT_EQ(task_share(s, &other, "of nobody", "fine",
                            VOW_SHARE(.mode = VOW_FENCED)),
                 0);
}

TEST(etcd_hold, keys_that_are_none_of_ours_do_no_harm)
{
    static const char *const keys[] = {
        "vow/",     "vow/n",           "vow/n/",   "vow/n/x/y/z/a/b",
        "vow/n/\1", "vow/n/garbage/l", "vow/p/",   "vow/p/garbage/q/1",
        "vow/q/a",  "vow/s/",          "vow/r/a/b"};
    struct task t = {.r = &r, .text = "x"};
    town_open(&r, NULL);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        etcd_put(&r.k, keys[i], garbage[i % 9]);
    seat_open(&r, &a, r.k.url, SEAT_OPTS);
    seat_open(&r, &b, r.k.url, SEAT_OPTS);
    CHECK_INT_EQ(task_share(&a, &t, "n", "x",
                            VOW_SHARE(.mode = VOW_ONCE, .ttl_ms = 60000)),
                 0);
    VOW_AUTO(vow_future) f = vow_authority_list(b.a);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
    const vow_records *list = vow_as_ptr(vow_get(f));
    bool found = false;
    vow_name name = vow_name_of("n");
    for (size_t i = 0; i < list->n; i++)
        found |= vow_name_equal(&list->at[i].name, &name);
    CHECK(found);
    f = vow_future_unref(f);
    CHECK_INT_EQ(town_until(&r, vow_authority_pools(b.a)), 0);
    CHECK_INT_EQ(task_share(&b, &t, "n", "x", VOW_SHARE(.mode = VOW_ONCE)), 0);
    CHECK_UINT_EQ(t.runs, 1);
    seat_close(&r, &b);
    seat_close(&r, &a);
    town_close(&r);
}

TEST(etcd_hold, a_record_that_was_spoiled_is_survived)
{
    static char keys[64][256];
    town_open(&r, NULL);
    seat_open(&r, &b, r.k.url, SHORT_OPTS);
    for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
        struct turn runs;
        char text[16];
        (void)snprintf(text, sizeof(text), "bad-%zu", i);
        seat_open(&r, &a, r.k.url, SHORT_OPTS);
        turn_take(&r, &a, &runs, text, VOW_SHARE(.mode = VOW_ONCE));
        CHECK(runs.code == 0 && runs.lease != NULL);
        size_t n = keys_there(keys, 64);
        CHECK(n > 0);
        for (size_t k = 0; k < n; k++)
            etcd_put(&r.k, keys[k], garbage[i]);
        use_it(&b, text);
        (void)turn_say(&r, &runs, "mine");
        turn_drop(&runs);
        seat_close(&r, &a);
        n = keys_there(keys, 64);
        for (size_t k = 0; k < n; k++)
            etcd_delete(&r.k, keys[k]);
    }
    seat_close(&r, &b);
    town_close(&r);
}
