/* SPDX-License-Identifier: MIT */
/* etcd_results_test.c - long results of a store on etcd, in another store: a
 * folder. Etcd itself is never asked. */
#include "etcd_call_rig.h"
#include "folder.h"
#include "vow/uv.h"

#include "vow/fiber.h"
#include <poll.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef VOW_HAVE_SQLITE

enum { STORES = 2, LONG_MS = 3600 * 1000 };

struct bench {
    struct world *w;
    struct folder folder;
    vow_store *at[STORES];
};

static struct world world;

static vow_store *open_one(struct world *w, const char *url,
                           const char *results)
{
    VOW_AUTO(vow_future)
    opened =
        vow_store_etcd_open(w->loop, url, VOW_ETCD_OPTS(.results = results));
    int rc = vow_loop_run_until(w->loop, opened);
    if (rc == 0)
        return vow_as_ptr(vow_get(opened));
    if (!fault_explains(w, rc))
        FAIL("%s", vow_error_message(vow_error_of(opened)));
    (void)vow_error_of(opened);
    return NULL;
}

static void close_one(struct world *w, vow_store **store)
{
    if (*store == NULL)
        return;
    VOW_AUTO(vow_future) closed = (*store)->ops->close(*store);
    *store = NULL;
    (void)vow_loop_run_until(w->loop, closed);
    (void)vow_error_of(closed);
}

/* Two stores that keep long results in the same folder. */
static void bench_open(struct bench *b)
{
    b->w = &world;
    world_open_real(b->w);
    folder_open(&b->folder);
    for (size_t i = 0; i < STORES; i++)
        b->at[i] = open_one(b->w, "etcd://127.0.0.1:1", b->folder.path);
}

static void bench_close(struct bench *b)
{
    for (size_t i = 0; i < STORES; i++)
        close_one(b->w, &b->at[i]);
    folder_close(&b->folder);
    world_run(b->w);
    world_close(b->w);
}

static struct bench b;

/* ---- what is asked ------------------------------------------------------- */

struct got {
    unsigned told;
    int code;
    vow_bytes *bytes; /* the ticket, or the value */
    struct vow__etcd *etcd;
    bool puts;
    vow_commit_request put;
    vow_bytes *ticket;
};

static vow_next got_main(void *arg)
{
    struct got *g = arg;
    vow_bytes *bytes = NULL;
    g->code = g->puts ? vow__results_put(g->etcd, &g->put, &bytes)
                      : vow__results_get(g->etcd, &g->put.hold.name,
                                         g->put.hold.epoch, g->ticket, &bytes);
    CHECK_UINT_EQ(g->told++, 0);
    CHECK((g->code == 0) == (bytes != NULL));
    g->bytes = bytes;
    vow_bytes_unref(g->put.value);
    vow_bytes_unref(g->ticket);
    return vow_ok(vow_nothing());
}

/* On a fiber; without memory for one it ends at once. */
static void got_start(vow_store *s, struct got *g)
{
    g->etcd = vow__etcd_of(s);
    VOW_AUTO(vow_future)
    fiber = vow_async(vow__etcd_loop(g->etcd), got_main, g);
    if (vow_state_of(fiber) != VOW_REJECTED)
        return;
    g->code = vow_error_code(vow_error_of(fiber));
    g->told++;
    vow_bytes_unref(g->put.value);
    vow_bytes_unref(g->ticket);
}

static void start_put(vow_store *s, const vow_commit_request *put,
                      struct got *g)
{
    g->puts = true;
    g->put = *put;
    vow_bytes_ref(put->value);
    got_start(s, g);
}

static void start_get(vow_store *s, const vow_name *name, uint64_t epoch,
                      vow_bytes *ticket, struct got *g)
{
    g->put.hold.name = *name;
    g->put.hold.epoch = epoch;
    g->ticket = ticket == NULL ? NULL : vow_bytes_ref(ticket);
    got_start(s, g);
}

/* Without memory of its own, for the sweep. */
static void turn(struct world *w)
{
    vow_loop_hold(w->loop);
    (void)uv_run(vow_loop_uv(w->loop), UV_RUN_NOWAIT);
    vow_loop_release(w->loop);
    (void)poll(NULL, 0, 1);
}

static void wait_for(struct world *w, const struct got *g)
{
    for (int i = 0; i < 5000 && g->told == 0; i++)
        turn(w);
    CHECK_UINT_EQ(g->told, 1);
}

static vow_bytes *bytes_of(struct world *w, const char *text, size_t repeat)
{
    vow_bytes *bytes = NULL;
    size_t n = strlen(text);
    if (vow_bytes_new(w->loop, NULL, n * repeat, &bytes) < 0)
        return NULL;
    for (size_t i = 0; i < repeat; i++)
        memcpy(vow_bytes_data(bytes) + i * n, text, n);
    return bytes;
}

static vow_commit_request ask_of(const char *name, uint64_t epoch,
                                 vow_bytes *value)
{
    vow_commit_request ask = {
        .hold = {.name = vow_name_of(name), .epoch = epoch},
        .outcome = VOW_OUTCOME_DONE,
        .value = value,
        .ttl_ms = LONG_MS};
    randombytes_buf(&ask.hold.token, sizeof(ask.hold.token));
    return ask;
}

/* The ticket of it, owned, or NULL and the code. */
static vow_bytes *put(vow_store *s, const vow_commit_request *ask,
                      int *ret_code)
{
    struct got g = {.told = 0};
    start_put(s, ask, &g);
    wait_for(&world, &g);
    *ret_code = g.code;
    return g.bytes;
}

static vow_bytes *put_text(vow_store *s, const char *name, uint64_t epoch,
                           const char *text)
{
    int code;
    VOW_AUTO(vow_bytes) value = bytes_of(&world, text, 1);
    vow_commit_request ask = ask_of(name, epoch, value);
    vow_bytes *ticket = put(s, &ask, &code);
    CHECK_INT_EQ(code, 0);
    CHECK(ticket != NULL);
    return ticket;
}

static vow_bytes *get(vow_store *s, const char *name, uint64_t epoch,
                      vow_bytes *ticket, int *ret_code)
{
    struct got g = {.told = 0};
    vow_name n = vow_name_of(name);
    start_get(s, &n, epoch, ticket, &g);
    wait_for(&world, &g);
    *ret_code = g.code;
    return g.bytes;
}

static void check_get(vow_store *s, const char *name, uint64_t epoch,
                      vow_bytes *ticket, const char *text)
{
    int code;
    VOW_AUTO(vow_bytes) value = get(s, name, epoch, ticket, &code);
    if (text == NULL) {
        CHECK_INT_EQ(code, VOW_EIO);
        return;
    }
    CHECK_INT_EQ(code, 0);
    CHECK_UINT_EQ(vow_bytes_size(value), strlen(text));
    CHECK(memcmp(vow_bytes_data(value), text, strlen(text)) == 0);
}

/* ---- put and get --------------------------------------------------------- */

TEST(etcd_results, what_one_has_put_there_another_gets)
{
    bench_open(&b);
    VOW_AUTO(vow_bytes) ticket = put_text(b.at[0], "a", 7, "hello");
    CHECK(vow_bytes_size(ticket) < 100);
    CHECK(memcmp(vow_bytes_data(ticket), "5 ", 2) == 0);
    check_get(b.at[1], "a", 7, ticket, "hello");
    check_get(b.at[0], "a", 7, ticket, "hello");
    ticket = vow_bytes_unref(ticket);
    bench_close(&b);
}

TEST(etcd_results, megabytes_come_back_as_they_were)
{
    int code;
    bench_open(&b);
    VOW_AUTO(vow_bytes) value = bytes_of(&world, "0123456789abcdef", 300000);
    vow_commit_request ask = ask_of("a", 1, value);
    VOW_AUTO(vow_bytes) ticket = put(b.at[0], &ask, &code);
    CHECK_INT_EQ(code, 0);
    VOW_AUTO(vow_bytes) back = get(b.at[1], "a", 1, ticket, &code);
    CHECK_INT_EQ(code, 0);
    CHECK_UINT_EQ(vow_bytes_size(back), vow_bytes_size(value));
    CHECK(memcmp(vow_bytes_data(back), vow_bytes_data(value),
                 vow_bytes_size(value)) == 0);
    back = vow_bytes_unref(back);
    ticket = vow_bytes_unref(ticket);
    value = vow_bytes_unref(value);
    bench_close(&b);
}

TEST(etcd_results, names_epochs_and_prefixes_are_apart)
{
    bench_open(&b);
    VOW_AUTO(vow_bytes) ticket = put_text(b.at[0], "a", 7, "hello");
    check_get(b.at[0], "b", 7, ticket, NULL);
    check_get(b.at[0], "a", 8, ticket, NULL);
    close_one(b.w, &b.at[1]);
    b.at[1] = open_one(b.w, "etcd://127.0.0.1:1?prefix=b/", b.folder.path);
    check_get(b.at[1], "a", 7, ticket, NULL);
    check_get(b.at[0], "a", 7, ticket, "hello");
    ticket = vow_bytes_unref(ticket);
    bench_close(&b);
}

/* Which of them settled it is decided in etcd, and either may be. */
TEST(etcd_results, two_who_settle_the_same_epoch_do_not_meet)
{
    bench_open(&b);
    VOW_AUTO(vow_bytes) one = put_text(b.at[0], "a", 7, "one");
    VOW_AUTO(vow_bytes) two = put_text(b.at[1], "a", 7, "two");
    check_get(b.at[0], "a", 7, one, "one");
    check_get(b.at[0], "a", 7, two, "two");
    one = vow_bytes_unref(one);
    two = vow_bytes_unref(two);
    bench_close(&b);
}

TEST(etcd_results, the_same_may_be_put_twice)
{
    bench_open(&b);
    for (size_t i = 0; i < 4; i++) {
        VOW_AUTO(vow_bytes) ticket = put_text(b.at[i % 2], "a", 7, "hello");
        check_get(b.at[(i + 1) % 2], "a", 7, ticket, "hello");
    }
    bench_close(&b);
}

TEST(etcd_results, what_is_gone_is_told_and_can_be_put_again)
{
    bench_open(&b);
    VOW_AUTO(vow_bytes) ticket = put_text(b.at[0], "a", 7, "hello");
    close_one(b.w, &b.at[1]);
    folder_close(&b.folder);
    CHECK(mkdir(b.folder.path, 0700) == 0);
    b.at[1] = open_one(b.w, "etcd://127.0.0.1:1", b.folder.path);
    for (size_t i = 0; i < 3; i++) { /* nobody is in the way of the next */
        check_get(b.at[1], "a", 7, ticket, NULL);
        CHECK_HAS(vow__etcd_explain(b.at[1]), b.folder.path);
        CHECK_HAS(vow__etcd_explain(b.at[1]), "forget the name");
    }
    VOW_AUTO(vow_bytes) again = put_text(b.at[1], "a", 7, "hello");
    check_get(b.at[1], "a", 7, ticket, "hello");
    again = vow_bytes_unref(again);
    ticket = vow_bytes_unref(ticket);
    bench_close(&b);
}

/* A ticket is what etcd has; anything may stand there. */
TEST(etcd_results, a_ticket_that_is_none_gets_nothing)
{
    static const char *const odd[] = {"", "5", "-1 ff", "5 0000",
                                      "99999999999999999999999 aa"};
    bench_open(&b);
    VOW_AUTO(vow_bytes) ticket = put_text(b.at[0], "a", 7, "hello");
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        VOW_AUTO(vow_bytes) other = bytes_of(b.w, odd[i], 1);
        check_get(b.at[0], "a", 7, other, NULL);
    }
    check_get(b.at[0], "a", 7, NULL, NULL);
    ticket = vow_bytes_unref(ticket);
    bench_close(&b);
}

/* ---- the other store need not be trusted --------------------------------- */

/* The name that it lies under, which must be the same in all versions and on
 * all machines. */
static vow_name place_of(const char *name, const char *epoch, vow_bytes *ticket)
{
    vow_name n = vow_name_of(name);
    const vow_field fields[] = {
        vow_field_text("a result of"),
        vow_field_text("vow/"),
        {n.hash, sizeof(n.hash)},
        vow_field_text(epoch),
        {vow_bytes_data(ticket), vow_bytes_size(ticket)},
    };
    return vow_name_make(NULL, fields, 5);
}

struct record_got {
    unsigned told;
    int code;
    uint32_t status;
    uint64_t left_ms;
};

static void on_record(int code, const vow_record *records, size_t n, void *user)
{
    struct record_got *g = user;
    g->told++;
    g->code = code;
    g->status = code == 0 && n == 1 ? records[0].status : 0;
    g->left_ms = code == 0 && n == 1 ? records[0].left_ms : 0;
}

static vow_store *open_folder(struct bench *bb)
{
    char url[FOLDER_MAX + 8];
    snprintf(url, sizeof(url), "file:%s", bb->folder.path);
    VOW_AUTO(vow_future) opened = vow_store_open(bb->w->loop, url);
    CHECK_INT_EQ(vow_loop_run_until(bb->w->loop, opened), 0);
    return vow_as_ptr(vow_get(opened));
}

static void wait_record(const struct record_got *g)
{
    while (g->told == 0)
        turn(&world);
    CHECK_INT_EQ(g->code, 0);
}

TEST(etcd_results, what_was_changed_there_is_not_taken)
{
    struct record_got g = {.told = 0};
    bench_open(&b);
    VOW_AUTO(vow_bytes) ticket = put_text(b.at[0], "a", 7, "hello");
    vow_store *folder = open_folder(&b);
    vow_name place = place_of("a", "7", ticket);
    folder->ops->forget(folder, &place, 0, on_record, &g);
    wait_record(&g);
    CHECK_UINT_EQ(g.status, VOW_STATUS_NONE); /* it was there: */
    check_get(b.at[1], "a", 7, ticket, NULL);
    VOW_AUTO(vow_bytes) other = bytes_of(b.w, "hell0", 1);
    vow_commit_request ask = {.hold = {.name = place, .epoch = 7},
                              .outcome = VOW_OUTCOME_DONE,
                              .flags = VOW_COMMIT_PUT,
                              .value = other,
                              .ttl_ms = LONG_MS};
    g.told = 0;
    folder->ops->commit(folder, &ask, on_record, &g);
    wait_record(&g);
    check_get(b.at[1], "a", 7, ticket, NULL);
    CHECK_HAS(vow__etcd_explain(b.at[1]), "is not the result");
    close_one(b.w, &folder);
    other = vow_bytes_unref(other);
    ticket = vow_bytes_unref(ticket);
    bench_close(&b);
}

/* Leases of etcd end up to some seconds late. */
TEST(etcd_results, a_value_lasts_longer_than_its_record)
{
    static const uint64_t ttls[][2] = {
        {60000, 60000}, {1000, 1000}, {0, 60000}};
    bench_open(&b);
    vow_store *folder = open_folder(&b);
    for (size_t i = 0; i < 3; i++) {
        int code;
        struct record_got g = {.told = 0};
        VOW_AUTO(vow_bytes) value = bytes_of(b.w, "hello", i + 1);
        vow_commit_request ask = ask_of("a", 7, value);
        ask.ttl_ms = ttls[i][0];
        VOW_AUTO(vow_bytes) ticket = put(b.at[0], &ask, &code);
        CHECK_INT_EQ(code, 0);
        vow_name place = place_of("a", "7", ticket);
        folder->ops->peek(folder, &place, 1, on_record, &g);
        wait_record(&g);
        CHECK_UINT_EQ(g.status, VOW_STATUS_SETTLED);
        CHECK(g.left_ms > ttls[i][1] + 4000);
        CHECK(g.left_ms <= ttls[i][1] + 10000);
    }
    close_one(b.w, &folder);
    bench_close(&b);
}

/* ---- where --------------------------------------------------------------- */

TEST(etcd_results, without_a_place_a_long_result_is_refused_with_what_to_do)
{
    int code;
    bench_open(&b);
    close_one(b.w, &b.at[1]);
    b.at[1] = open_one(b.w, "etcd://127.0.0.1:1", NULL);
    VOW_AUTO(vow_bytes) value = bytes_of(b.w, "x", 70000);
    vow_commit_request ask = ask_of("a", 7, value);
    CHECK(put(b.at[1], &ask, &code) == NULL);
    CHECK_INT_EQ(code, VOW_E2BIG);
    CHECK_HAS(vow__etcd_explain(b.at[1]), "--results");
    CHECK_HAS(vow__etcd_explain(b.at[1]), "65536");
    VOW_AUTO(vow_bytes) ticket = put(b.at[0], &ask, &code);
    CHECK(get(b.at[1], "a", 7, ticket, &code) == NULL);
    CHECK_INT_EQ(code, VOW_EIO);
    CHECK_HAS(vow__etcd_explain(b.at[1]), "--results");
    ticket = vow_bytes_unref(ticket);
    value = vow_bytes_unref(value);
    bench_close(&b);
}

TEST(etcd_results, a_place_that_cannot_be_used_is_told_and_tried_again)
{
    char deep[FOLDER_MAX + 16];
    bench_open(&b);
    snprintf(deep, sizeof(deep), "%s/a/b", b.folder.path);
    close_one(b.w, &b.at[1]);
    b.at[1] = open_one(b.w, "etcd://127.0.0.1:1", deep);
    VOW_AUTO(vow_bytes) value = bytes_of(b.w, "hello", 1);
    vow_commit_request ask = ask_of("a", 7, value);
    for (size_t i = 0; i < 2; i++) {
        int code;
        CHECK(put(b.at[1], &ask, &code) == NULL);
        CHECK_INT_EQ(code, VOW_ESTORE);
        CHECK_HAS(vow__etcd_explain(b.at[1]), deep);
    }
    deep[strlen(deep) - 2] = 0;
    CHECK(mkdir(deep, 0700) == 0);
    VOW_AUTO(vow_bytes) ticket = put_text(b.at[1], "a", 7, "hello");
    check_get(b.at[1], "a", 7, ticket, "hello");
    ticket = vow_bytes_unref(ticket);
    value = vow_bytes_unref(value);
    bench_close(&b);
}

TEST(etcd_results, what_can_never_be_a_place_is_refused_when_it_is_opened)
{
    static const char *const places[] = {"nosuch:x", "etcd://h", "etcds://h",
                                         "http://u:sesame@h/",
                                         "nosuch://sesame:sesame@h?sesame=1"};
    world_open(&world);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        VOW_AUTO(vow_future)
        opened = vow_store_etcd_open(world.loop, "etcd://h",
                                     VOW_ETCD_OPTS(.results = places[i]));
        CHECK_INT_EQ(vow_loop_run_until(world.loop, opened), VOW_EINVAL);
        const char *why = vow_error_message(vow_error_of(opened));
        CHECK_HAS(why, "give a folder, or redis://HOST");
        CHECK(strstr(why, "sesame") == NULL);
    }
    world_run(&world);
    world_close(&world);
}

TEST(etcd_results, a_place_is_told_without_its_password)
{
    static const char *const places[] = {
        "redis://me:sesame@127.0.0.1:1/3?timeout=100",
        "redis://:sesame@127.0.0.1:1",
    };
    for (size_t i = 0; i < 2; i++) {
        int code;
        world_open_real(&world);
        vow_store *s = open_one(&world, "etcd://127.0.0.1:1", places[i]);
        VOW_AUTO(vow_bytes) value = bytes_of(&world, "hello", 1);
        vow_commit_request ask = ask_of("a", 7, value);
        CHECK(put(s, &ask, &code) == NULL);
        CHECK(code < 0);
        CHECK(strstr(vow__etcd_explain(s), "sesame") == NULL);
        CHECK_HAS(vow__etcd_explain(s), "redis");
        close_one(&world, &s);
        value = vow_bytes_unref(value);
        world_run(&world);
        world_close(&world);
    }
}

/* ---- the end ------------------------------------------------------------- */

TEST(etcd_results, a_store_that_is_closed_ends_what_was_asked)
{
    for (size_t turns = 0; turns < 4; turns++) {
        struct got g[3] = {{.told = 0}};
        vow_name name = vow_name_of("a");
        bench_open(&b);
        VOW_AUTO(vow_bytes) value = bytes_of(b.w, "hello", 20000);
        for (size_t i = 0; i < 3; i++) {
            vow_commit_request ask = ask_of("a", i + 1, value);
            if (i < 2)
                start_put(b.at[0], &ask, &g[i]);
            else
                start_get(b.at[0], &name, 1, value, &g[i]);
            CHECK_UINT_EQ(g[i].told, 0);
        }
        for (size_t i = 0; i < turns; i++)
            world_turn(b.w);
        close_one(b.w, &b.at[0]);
        for (size_t i = 0; i < 3; i++) {
            CHECK_UINT_EQ(g[i].told, 1);
            CHECK(g[i].code == VOW_ECLOSED || turns > 0);
            vow_bytes_unref(g[i].bytes);
        }
        value = vow_bytes_unref(value);
        bench_close(&b);
    }
}

TEST(etcd_results, many_at_once_are_all_answered)
{
    enum { MANY = 50 };
    static struct got puts[MANY], gets[MANY];
    bench_open(&b);
    memset(puts, 0, sizeof(puts));
    memset(gets, 0, sizeof(gets));
    for (size_t i = 0; i < MANY; i++) {
        VOW_AUTO(vow_bytes) value = bytes_of(b.w, "hello", i + 1);
        vow_commit_request ask = ask_of("a", i, value);
        start_put(b.at[i % 2], &ask, &puts[i]);
    }
    for (size_t i = 0; i < MANY; i++) {
        vow_name name = vow_name_of("a");
        wait_for(b.w, &puts[i]);
        start_get(b.at[i % 2], &name, i, puts[i].bytes, &gets[i]);
    }
    for (size_t i = 0; i < MANY; i++) {
        wait_for(b.w, &gets[i]);
        CHECK_UINT_EQ(vow_bytes_size(gets[i].bytes), 5 * (i + 1));
        vow_bytes_unref(puts[i].bytes);
        vow_bytes_unref(gets[i].bytes);
    }
    bench_close(&b);
}

FAULT_SWEEP(etcd_results, survives_every_lack_of_memory, FAULT_ALLOC)
{
    struct folder folder;
    folder_open(&folder);
    vow_store *s = open_one(w, "etcd://127.0.0.1:1", folder.path);
    VOW_AUTO(vow_bytes) value = bytes_of(w, "hello", 1);
    if (s != NULL && value != NULL) {
        struct got put_it = {.told = 0}, got_it = {.told = 0};
        vow_commit_request ask = ask_of("a", 7, value);
        start_put(s, &ask, &put_it);
        wait_for(w, &put_it);
        CHECK(put_it.code == 0 || fault_fired(w));
        if (put_it.code == 0) {
            start_get(s, &ask.hold.name, 7, put_it.bytes, &got_it);
            wait_for(w, &got_it);
            CHECK(got_it.code == 0 || fault_fired(w));
        }
        vow_bytes_unref(put_it.bytes);
        vow_bytes_unref(got_it.bytes);
    }
    value = vow_bytes_unref(value);
    close_one(w, &s);
    folder_close(&folder);
}

#endif
