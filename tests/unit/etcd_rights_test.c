/* SPDX-License-Identifier: MIT */
/* etcd_rights_test.c - members of etcd that want to know who asks: a password
 * from each of its places, one that is wrong, tokens that were forgotten by a
 * restart, and a role that may do no more than vow-store(7) says. */
#include "etcd_process.h"

#include <sys/stat.h>

#define LOCKED ETCD_OPTS(.user = "vow", .password = "s3cret", .prefix = "vow/")
#define SEAT_OPTS                                                              \
    VOW_AUTHORITY(.lease_ms = HELD_MS, .pulse_ms = 1000,                       \
                  .recheck_ms = RARELY_MS)
#define FENCED(...) VOW_SHARE(.mode = VOW_FENCED, __VA_ARGS__)

static struct town r;
static struct seat a, b;

/* An address with this before the host and that behind it, and a timeout for
 * machines with much to do. */
static const char *url_of(const char *who, const char *options)
{
    static char url[512];
    (void)snprintf(url, sizeof(url), "etcd://%s127.0.0.1:%u%s%stimeout=30000",
                   who, r.k.at[0].port, options, options[0] == 0 ? "?" : "&");
    return url;
}

/* The code of work in FENCED mode, and its sentence. */
static int share_with(const char *url, char why[512])
{
    static unsigned asked;
    struct task t = {.r = &r, .text = "x"};
    char text[16];
    (void)snprintf(text, sizeof(text), "n-%u", asked++);
    vow_name name = vow_name_of(text);
    seat_open(&r, &a, url, SEAT_OPTS);
    VOW_AUTO(vow_future)
    f = vow_share(a.a, &name, task_run, &t, FENCED(.ttl_ms = 1));
    int rc = vow_loop_run_until(r.w.loop, f);
    (void)snprintf(why, 512, "%s", vow_error_message(vow_error_of(f)));
    CHECK_UINT_EQ(t.runs, rc == 0 ? 1 : 0);
    f = vow_future_unref(f);
    seat_close(&r, &a);
    return rc;
}

TEST(etcd_rights, a_password_is_taken_from_each_of_its_places)
{
    char path[128], options[160], why[512];
    town_open(&r, LOCKED);
    CHECK_INT_EQ(share_with(url_of("vow:s3cret@", ""), why), 0);
    CHECK(setenv("VOW_STORE_PASSWORD", "s3cret", 1) == 0);
    CHECK_INT_EQ(share_with(url_of("vow@", ""), why), 0);
    CHECK(setenv("VOW_STORE_PASSWORD", "wrong", 1) == 0);
    (void)snprintf(path, sizeof(path), "%s/password", r.k.folder.path);
    FILE *f = fopen(path, "w");
    CHECK(f != NULL && fchmod(fileno(f), 0600) == 0);
    CHECK(fputs("s3cret\nnot this\n", f) >= 0 && fclose(f) == 0);
    (void)snprintf(options, sizeof(options), "?password-file=%s", path);
    CHECK_INT_EQ(share_with(url_of("vow@", options), why), 0);
    town_close(&r);
}

TEST(etcd_rights, a_wrong_password_is_told_and_not_shown)
{
    char why[512];
    town_open(&r, LOCKED);
    CHECK_INT_EQ(share_with(url_of("vow:wr0ng@", ""), why), VOW_ESTORE);
    CHECK(why[0] != 0 && strstr(why, "wr0ng") == NULL);
    if (strstr(why, "password") == NULL && strstr(why, "auth") == NULL)
        FAIL("it does not tell why: %s", why);
    CHECK_INT_EQ(share_with(url_of("nobody:s3cret@", ""), why), VOW_ESTORE);
    CHECK_INT_EQ(share_with(url_of("", ""), why), VOW_ESTORE);
    CHECK(why[0] != 0);
    town_close(&r);
}

/* Held and waited for over restarts, each of which forgets all tokens. */
TEST(etcd_rights, forgotten_tokens_are_not_noticed)
{
    struct turn mine, waits;
    struct task t = {.r = &r, .text = "y"};
    town_open(&r, LOCKED);
    seat_open(&r, &a, url_of("vow:s3cret@", ""), SEAT_OPTS);
    seat_open(&r, &b, url_of("vow:s3cret@", ""), SEAT_OPTS);
    turn_take(&r, &a, &mine, "n", FENCED(.ttl_ms = 60000));
    turn_take(&r, &b, &waits, "n", /* it may look while the member is away */
              FENCED(.ttl_ms = 60000, .store_down = VOW_DOWN_WAIT));
    CHECK(mine.code == 0 && mine.lease != NULL);
    CHECK(waits.code == 0 && waits.lease == NULL);
    for (int i = 0; i < 3; i++) {
        etcd_again(&r.k, 0);
        town_pass(&r, 2000); /* a pulse, with what is not known any more */
        CHECK(vow_lease_left_ms(mine.lease) > 0);
        CHECK_INT_EQ(
            task_share(&b, &t, "other", "y",
                       FENCED(.ttl_ms = 1, .store_down = VOW_DOWN_WAIT)),
            0);
    }
    CHECK_INT_EQ(turn_say(&r, &mine, "x"), 0);
    CHECK_INT_EQ(turn_hears(&r, &waits, "x"), 0);
    CHECK_UINT_EQ(atomic_load(&a.told[VOW_EVENT_LOST]), 0);
    turn_drop(&mine);
    turn_drop(&waits);
    seat_close(&r, &b);
    seat_close(&r, &a);
    town_close(&r);
}

/* All that there is, by a user who may touch no other key. */
TEST(etcd_rights, the_role_of_the_manual_suffices)
{
    struct task t = {.r = &r, .text = "x"};
    vow_name name = vow_name_of("n");
    vow_pool *pool = NULL;
    town_open(&r, LOCKED);
    etcd_put(&r.k, "other/key", "of others");
    seat_open(&r, &a, url_of("vow:s3cret@", ""), SEAT_OPTS);
    for (uint32_t mode = VOW_SHARED; mode <= VOW_ONCE; mode++) {
        char text[8];
        (void)snprintf(text, sizeof(text), "m-%u", mode);
        CHECK_INT_EQ(task_share(&a, &t, text, "x",
                                VOW_SHARE(.mode = mode, .ttl_ms = 60000)),
                     0);
    }
    CHECK_INT_EQ(town_until(&r, vow_authority_list(a.a)), 0);
    CHECK_INT_EQ(town_until(&r, vow_authority_pools(a.a)), 0);
    CHECK_INT_EQ(town_until(&r, vow_authority_peek(a.a, &name, 1)), 0);
    CHECK_INT_EQ(town_until(&r, vow_authority_forget(a.a, &name, 0)), 0);
    CHECK_INT_EQ(vow_pool_open(a.a, "p",
                               VOW_POOL(.limits = {.concurrent = 2,
                                                   .rate = 10,
                                                   .window_us = 1000000}),
                               &pool),
                 0);
    VOW_AUTO(vow_future) f = vow_pool_acquire(pool, NULL, 1);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
    vow_grant_release(vow_grant_take(vow_get(f)));
    f = vow_future_unref(f);
    CHECK_INT_EQ(town_until(&r, vow_pool_limit(a.a, "p", NULL)), 0);
    pool = vow_pool_unref(pool);
    seat_close(&r, &a);
    CHECK_STR_EQ(etcd_get(&r.k, "other/key"), "of others");
    town_close(&r);
}

/* Another prefix than that of the role: refused with a reason, in time. */
TEST(etcd_rights, keys_outside_of_the_role_are_refused)
{
    char why[512];
    town_open(&r, LOCKED);
    uint64_t since = town_ms(&r);
    CHECK_INT_EQ(share_with(url_of("vow:s3cret@", "?prefix=other/"), why),
                 VOW_ESTORE);
    CHECK(town_ms(&r) - since < 25000);
    if (strstr(why, "permission") == NULL && strstr(why, "allowed") == NULL &&
        strstr(why, "may not") == NULL)
        FAIL("it does not tell why: %s", why);
    CHECK_INT_EQ(share_with(url_of("vow:s3cret@", "?prefix=vow/mine/"), why),
                 0);
    town_close(&r);
}
