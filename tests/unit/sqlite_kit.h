/* SPDX-License-Identifier: MIT */
/* sqlite_kit.h - a store in a folder, asked and answered at once, also from
 * several processes.
 *
 *     struct kit k;
 *     kit_open(&k, folder);
 *     CHECK_UINT_EQ(kit_claim(&k, "a", 1).says, VOW_STATUS_OWNED);
 *     kit_close(&k);
 *
 * A child (kit_child) opens a kit of its own, and ends by _exit(); what it
 * finds wrong fails the test when kit_wait() sees it.
 */
#ifndef TEST_SQLITE_KIT_H
#define TEST_SQLITE_KIT_H

#include "folder.h"
#include "store/file/file_rows.h"
#include "world.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KIT_LONG_MS = 3600 * 1000 };

struct kit {
    struct world world;
    vow_store *store;
    unsigned records, places, cancels, doubts; /* told */
    struct kit_record {                        /* the last record told */
        uint32_t status, mode, takeovers;
        uint64_t epoch, age_ms, left_ms, cost_ms;
        bool failed;
        size_t size; /* of the value */
        unsigned char first;
        char label[VOW_LABEL_MAX + 1], runner[VOW_LABEL_MAX + 1];
    } told;
    unsigned damages;
    char damaged[600]; /* where it went */
};

struct kit_answer {
    int code;
    uint32_t status;
    uint64_t epoch;
    uint64_t waited; /* for a claim that waited for this run */
    uint32_t takeovers;
    bool failed;
    size_t size; /* of the value */
    unsigned char first;
    uint64_t limit; /* of a pool */
    uint64_t held, waiting;
};

/* ---- what is told -------------------------------------------------------- */

static inline void kit_on_record(const vow_record *r, void *user)
{
    struct kit *k = user;
    k->records++;
    k->told = (struct kit_record){.status = r->status,
                                  .mode = r->mode,
                                  .takeovers = r->takeovers,
                                  .epoch = r->epoch,
                                  .age_ms = r->age_ms,
                                  .left_ms = r->left_ms,
                                  .cost_ms = r->cost_ms,
                                  .failed = r->failed,
                                  .size = vow_bytes_size(r->value)};
    if (k->told.size > 0)
        k->told.first = vow_bytes_data(r->value)[0];
    snprintf(k->told.label, sizeof(k->told.label), "%s", r->label);
    snprintf(k->told.runner, sizeof(k->told.runner), "%s", r->runner);
}

static inline void kit_on_cancel(const vow_name *name, void *user)
{
    (void)name;
    ((struct kit *)user)->cancels++;
}

static inline void kit_on_place(const vow_token *token, void *user)
{
    (void)token;
    ((struct kit *)user)->places++;
}

static inline void kit_on_doubt(void *user)
{
    ((struct kit *)user)->doubts++;
}

static inline void kit_on_damage(const char *moved_to, void *user)
{
    struct kit *k = user;
    k->damages++;
    snprintf(k->damaged, sizeof(k->damaged), "%s", moved_to);
}

/* ---- opening ------------------------------------------------------------- */

/* The code; `why` has room for 600 and may be NULL. */
static inline int kit_try_open(struct kit *k, const char *folder,
                               uint64_t request_ms, char *why)
{
    memset(k, 0, sizeof(*k));
    world_open_real(&k->world);
    VOW_AUTO(vow_future)
    f = vow_store_sqlite_open(k->world.loop, folder,
                              VOW_SQLITE_OPTS(.request_ms = request_ms,
                                              .on_damage = kit_on_damage,
                                              .on_damage_user = k));
    vow_error *e = vow_error_of(f);
    if (e != NULL) {
        int code = vow_error_code(e);
        if (why != NULL)
            snprintf(why, 600, "%s", vow_error_message(e));
        f = vow_future_unref(f);
        world_close(&k->world);
        return code;
    }
    k->store = vow_as_ptr(vow_get(f));
    k->store->ops->listen(k->store,
                          &(const vow_store_events){.on_record = kit_on_record,
                                                    .on_cancel = kit_on_cancel,
                                                    .on_permit = kit_on_place,
                                                    .on_doubt = kit_on_doubt,
                                                    .user = k});
    return 0;
}

static inline void kit_open(struct kit *k, const char *folder)
{
    char why[600] = "";
    int code = kit_try_open(k, folder, 60000, why);
    if (code != 0)
        FAIL("%s cannot be opened: %d, %s", folder, code, why);
}

static inline void kit_close(struct kit *k)
{
    vow_future *f = k->store->ops->close(k->store);
    CHECK_INT_EQ(vow_loop_run_until(k->world.loop, f), 0);
    vow_future_unref(f);
    world_close(&k->world);
}

static inline const char *kit_why(struct kit *k)
{
    return k->store->ops->explain(k->store);
}

/* ---- steps --------------------------------------------------------------- */

static inline void kit_on_answer(int code, const vow_record *r, size_t n,
                                 void *user)
{
    struct kit_answer *a = user;
    *a = (struct kit_answer){.code = code};
    CHECK((code == 0) == (r != NULL));
    if (n == 0)
        return;
    a->status = r->status;
    a->epoch = r->epoch;
    a->waited = r->first;
    a->takeovers = r->takeovers;
    a->failed = r->failed;
    a->size = vow_bytes_size(r->value);
    a->first = a->size > 0 ? vow_bytes_data(r->value)[0] : 0;
}

static inline vow_token kit_token(uint64_t number)
{
    vow_token t = {.bytes = {0}};
    memcpy(t.bytes, &number, sizeof(number));
    return t;
}

static inline vow_claim_request kit_ask(const char *name, uint64_t token)
{
    return (vow_claim_request){.name = vow_name_of(name),
                               .token = kit_token(token),
                               .lease_ms = KIT_LONG_MS,
                               .takeovers = 1000000};
}

static inline struct kit_answer kit_claim_as(struct kit *k,
                                             const vow_claim_request *ask)
{
    struct kit_answer a;
    k->store->ops->claim(k->store, ask, kit_on_answer, &a);
    return a;
}

static inline struct kit_answer kit_claim(struct kit *k, const char *name,
                                          uint64_t token)
{
    vow_claim_request ask = kit_ask(name, token);
    return kit_claim_as(k, &ask);
}

/* With a value of so many bytes, all the same; `mode` is the mode of the
 * claim. */
static inline struct kit_answer kit_commit_mode(struct kit *k, const char *name,
                                                uint64_t token, uint64_t epoch,
                                                size_t size, uint32_t mode)
{
    struct kit_answer a;
    VOW_AUTO(vow_bytes) value = NULL;
    CHECK_INT_EQ(vow_bytes_new(k->world.loop, NULL, size, &value), 0);
    memset(vow_bytes_data(value), 'v', size);
    vow_commit_request ask = {.hold = {.name = vow_name_of(name),
                                       .token = kit_token(token),
                                       .epoch = epoch,
                                       .mode = mode},
                              .outcome = VOW_OUTCOME_DONE,
                              .ttl_ms = KIT_LONG_MS,
                              .value = value};
    k->store->ops->commit(k->store, &ask, kit_on_answer, &a);
    return a;
}

static inline struct kit_answer kit_commit(struct kit *k, const char *name,
                                           uint64_t token, uint64_t epoch,
                                           size_t size)
{
    return kit_commit_mode(k, name, token, epoch, size, VOW_SHARED);
}

static inline struct kit_answer kit_abandon(struct kit *k, const char *name,
                                            uint64_t token, uint64_t epoch)
{
    struct kit_answer a;
    vow_commit_request ask = {.hold = {.name = vow_name_of(name),
                                       .token = kit_token(token),
                                       .epoch = epoch},
                              .outcome = VOW_OUTCOME_ABANDONED};
    k->store->ops->commit(k->store, &ask, kit_on_answer, &a);
    return a;
}

static inline struct kit_answer kit_peek(struct kit *k, const char *name)
{
    struct kit_answer a;
    vow_name n = vow_name_of(name);
    k->store->ops->peek(k->store, &n, 1, kit_on_answer, &a);
    return a;
}

static inline struct kit_answer kit_pulse(struct kit *k, const char *name,
                                          uint64_t token, uint64_t epoch)
{
    struct kit_answer a;
    vow_hold hold = {
        .name = vow_name_of(name), .token = kit_token(token), .epoch = epoch};
    k->store->ops->pulse(k->store, &hold, 1, KIT_LONG_MS, kit_on_answer, &a);
    return a;
}

static inline void kit_on_place_answer(int code, const vow_pool_permit *p,
                                       size_t n, void *user)
{
    struct kit_answer *a = user;
    *a = (struct kit_answer){.code = code};
    CHECK((code == 0) == (n == 1));
    if (n == 1) {
        a->status = p->status;
        a->epoch = p->fence;
        a->limit = p->limits.concurrent;
    }
}

/* Of a pool with one place. */
static inline struct kit_answer kit_acquire(struct kit *k, const char *pool,
                                            uint64_t token)
{
    struct kit_answer a;
    vow_permit_request ask = {.pool = vow_name_of(pool),
                              .limits_of = vow_name_of(pool),
                              .token = kit_token(token),
                              .weight = 1,
                              .lease_ms = KIT_LONG_MS,
                              .limits = {.concurrent = 1},
                              .label = pool};
    k->store->ops->acquire(k->store, &ask, kit_on_place_answer, &a);
    return a;
}

static inline struct kit_answer kit_release(struct kit *k, const char *pool,
                                            uint64_t token)
{
    struct kit_answer a;
    vow_permit_hold hold = {.pool = vow_name_of(pool),
                            .token = kit_token(token)};
    k->store->ops->release(k->store, &hold, kit_on_place_answer, &a);
    return a;
}

/* A vow_pool_info; without a pool as before. */
static inline void kit_on_pool(int code, const vow_pool_info *p, size_t n,
                               void *user)
{
    if (code == 0 && n == 1)
        *(vow_pool_info *)user = *p;
}

/* ---- time ---------------------------------------------------------------- */

static inline uint64_t kit_now_ms(void)
{
    struct timespec t;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static inline void kit_nap_ms(long ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    (void)nanosleep(&t, NULL);
}

/* Run the loop until a counter has reached a number; the test's own limit is
 * the only one. */
static inline void kit_run_until(struct kit *k, const unsigned *counter,
                                 unsigned count)
{
    while (*counter < count) {
        VOW_AUTO(vow_future) pause = vow_delay(k->world.loop, 2);
        CHECK_INT_EQ(vow_loop_run_until(k->world.loop, pause), 0);
    }
}

/* ---- processes ----------------------------------------------------------- */

/* 0 in the child. */
static inline pid_t kit_child(void)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    return pid;
}

/* Wait for a child; it fails the test if it did not end by _exit(0). */
static inline void kit_wait(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        CHECK_INT_EQ(errno, EINTR);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        FAIL("a child ended with status %x", (unsigned)status);
}

static inline void kit_kill(pid_t pid)
{
    CHECK(kill(pid, SIGKILL) == 0);
    CHECK(waitpid(pid, NULL, 0) == pid);
}

/* Memory that children share, zeroed. */
static inline void *kit_shared(size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

static inline void kit_await(atomic_uint *counter, unsigned count)
{
    while (atomic_load(counter) < count)
        kit_nap_ms(1);
}

/* The number of files in a folder below. */
static inline size_t kit_count(const char *folder, const char *below)
{
    char command[400];
    char line[64] = "";
    snprintf(command, sizeof(command), "ls '%s/%s' | wc -l", folder, below);
    FILE *f = popen(command, "r");
    CHECK(f != NULL);
    CHECK(fgets(line, sizeof(line), f) != NULL);
    pclose(f);
    return (size_t)strtoul(line, NULL, 10);
}

/* Statements on the file itself, past the store. */
static inline void kit_sql(const char *folder, const char *sql)
{
    char path[600];
    char *error = NULL;
    sqlite3 *db = NULL;
    snprintf(path, sizeof(path), "%s/vow.db", folder);
    CHECK_INT_EQ(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK)
        FAIL("%s: %s", sql, error);
    CHECK_INT_EQ(sqlite3_close(db), SQLITE_OK);
}

#endif
