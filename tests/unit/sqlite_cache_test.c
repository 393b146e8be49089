/* SPDX-License-Identifier: MIT */
/* sqlite_cache_test.c - results that are found without opening the database:
 * all results that are valid, and no result that was forgotten, has expired or
 * was replaced. */
#include "fault.h"
#include "sqlite_kit.h"

#include <fcntl.h>

enum {
    SLOT_SIZE = 16 * 1024,
    STAMPS = 2048, /* the offset of the stamps in the file */
    SLOTS = 4096   /* and of the slots */
};

/* A command: opens the store, claims, and closes the store. */
struct find {
    bool cached; /* the database was not opened */
    struct kit_answer answer;
    struct kit_record record;
};

static void on_found(int code, const vow_record *r, size_t n, void *user)
{
    struct find *f = user;
    struct kit told = {.records = 0};
    kit_on_answer(code, r, n, &f->answer);
    if (n == 1)
        kit_on_record(r, &told);
    f->record = told.told;
}

static struct find find_as(const char *folder, const vow_claim_request *request)
{
    struct kit k;
    struct find f;
    memset(&f, 0, sizeof(f));
    kit_open(&k, folder);
    k.store->ops->claim(k.store, request, on_found, &f);
    f.cached = vow__file_of(k.store)->db == NULL;
    kit_close(&k);
    return f;
}

static struct find find(const char *folder, const char *name)
{
    static uint64_t token = 1000;
    vow_claim_request request = kit_ask(name, ++token);
    return find_as(folder, &request);
}

/* Makes the result of a name: `size` times the letter. */
static void settle(const char *folder, const char *name, char letter,
                   size_t size, uint64_t ttl_ms)
{
    struct kit k;
    struct kit_answer a;
    VOW_AUTO(vow_bytes) value = NULL;
    vow_claim_request request = kit_ask(name, (unsigned char)letter);
    request.flags = VOW_CLAIM_FORCE;
    request.label = "label";
    request.runner = "runner";
    kit_open(&k, folder);
    uint64_t epoch = kit_claim_as(&k, &request).epoch;
    CHECK_INT_EQ(vow_bytes_new(k.world.loop, NULL, size, &value), 0);
    if (size > 0)
        memset(vow_bytes_data(value), letter, size);
    vow_commit_request commit = {.hold = {.name = vow_name_of(name),
                                          .token = request.token,
                                          .epoch = epoch},
                                 .outcome = VOW_OUTCOME_DONE,
                                 .ttl_ms = ttl_ms,
                                 .cost_ms = 9,
                                 .value = value};
    k.store->ops->commit(k.store, &commit, kit_on_answer, &a);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    value = vow_bytes_unref(value);
    kit_close(&k);
}

static void forget(const char *folder, const char *name)
{
    struct kit k;
    struct kit_answer a;
    vow_name n = vow_name_of(name);
    kit_open(&k, folder);
    k.store->ops->forget(k.store, &n, 0, kit_on_answer, &a);
    CHECK_UINT_EQ(a.status, VOW_STATUS_NONE);
    kit_close(&k);
}

/* The result is found, and the next time in the cache. */
static void check_cached(const char *folder, const char *name, char letter,
                         size_t size)
{
    for (int i = 0; i < 3; i++) {
        struct find f = find(folder, name);
        CHECK_UINT_EQ(f.answer.status, VOW_STATUS_SETTLED);
        CHECK_UINT_EQ(f.answer.size, size);
        if (size > 0)
            CHECK_INT_EQ(f.answer.first, letter);
        if (i == 2)
            CHECK(f.cached);
    }
}

/* The cache has no result of the name, and the database has none either. */
static void check_gone(const char *folder, const char *name)
{
    struct find f = find(folder, name);
    CHECK_UINT_EQ(f.answer.status, VOW_STATUS_OWNED);
    CHECK(!f.cached);
}

static int cache_open(const char *folder)
{
    char path[600];
    snprintf(path, sizeof(path), "%s/cache", folder);
    return open(path, O_RDWR | O_CLOEXEC);
}

TEST(sqlite_cache, has_the_record_and_the_value)
{
    struct folder f;
    folder_open(&f);
    settle(f.path, "a", 'v', 300, KIT_LONG_MS);
    struct find first = find(f.path, "a");
    CHECK(!first.cached);
    struct find second = find(f.path, "a");
    CHECK(second.cached);
    CHECK_UINT_EQ(second.answer.waited, first.answer.waited);
    CHECK_UINT_EQ(second.record.epoch, first.record.epoch);
    CHECK_UINT_EQ(second.record.mode, first.record.mode);
    CHECK_UINT_EQ(second.record.takeovers, first.record.takeovers);
    CHECK_UINT_EQ(second.record.cost_ms, 9);
    CHECK(second.record.age_ms >= first.record.age_ms);
    CHECK(second.record.left_ms <= first.record.left_ms);
    CHECK(second.record.left_ms + 60000 > first.record.left_ms);
    CHECK(!second.record.failed);
    CHECK_STR_EQ(second.record.label, "label");
    CHECK_STR_EQ(second.record.runner, "runner");
    CHECK_UINT_EQ(second.record.size, 300);
    CHECK_INT_EQ(second.record.first, 'v');
    folder_close(&f);
}

TEST(sqlite_cache, has_values_of_all_sizes_but_those_between)
{
    static const size_t sizes[] = {0, 1, 3900, 4096, 10000, 70000, 1000000};
    struct folder f;
    folder_open(&f);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        settle(f.path, "a", (char)('a' + i), sizes[i], UINT64_MAX);
        check_cached(f.path, "a", (char)('a' + i), sizes[i]);
    }
    settle(f.path, "a", 'z', SLOT_SIZE, KIT_LONG_MS);
    for (int i = 0; i < 3; i++) {
        struct find found = find(f.path, "a");
        CHECK(!found.cached);
        CHECK_UINT_EQ(found.answer.size, SLOT_SIZE);
        CHECK_INT_EQ(found.answer.first, 'z');
    }
    folder_close(&f);
}

TEST(sqlite_cache, the_answer_to_a_refresh_has_no_value_for_it)
{
    struct folder f;
    struct kit k;
    folder_open(&f);
    settle(f.path, "a", 'v', 300, KIT_LONG_MS);
    kit_open(&k, f.path);
    vow_claim_request request = kit_ask("a", 2);
    request.refresh = 1; /* of another result */
    CHECK_UINT_EQ(kit_claim_as(&k, &request).status, VOW_STATUS_SETTLED);
    kit_close(&k);
    check_cached(f.path, "a", 'v', 300);
    folder_close(&f);
}

TEST(sqlite_cache, a_forgotten_result_is_gone)
{
    struct folder f;
    folder_open(&f);
    settle(f.path, "a", 'v', 10, KIT_LONG_MS);
    check_cached(f.path, "a", 'v', 10);
    forget(f.path, "a");
    check_gone(f.path, "a");
    folder_close(&f);
}

/* The store was opened before, and claims for the first time after. */
TEST(sqlite_cache, a_result_that_is_forgotten_meanwhile_is_gone)
{
    struct folder f;
    struct kit k;
    folder_open(&f);
    settle(f.path, "a", 'v', 10, KIT_LONG_MS);
    check_cached(f.path, "a", 'v', 10);
    kit_open(&k, f.path);
    CHECK(vow__file_of(k.store)->db == NULL);
    forget(f.path, "a");
    CHECK_UINT_EQ(kit_claim(&k, "a", 5).status, VOW_STATUS_OWNED);
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_cache, a_replaced_result_is_gone)
{
    struct folder f;
    struct kit k;
    folder_open(&f);
    settle(f.path, "a", 'v', 10, KIT_LONG_MS);
    check_cached(f.path, "a", 'v', 10);
    vow_claim_request force = kit_ask("a", 7);
    force.flags = VOW_CLAIM_FORCE;
    kit_open(&k, f.path);
    struct kit_answer own = kit_claim_as(&k, &force); /* not from the cache */
    CHECK_UINT_EQ(own.status, VOW_STATUS_OWNED);
    vow_claim_request other = kit_ask("a", 8);
    other.flags = VOW_CLAIM_NOWAIT;
    CHECK_UINT_EQ(find_as(f.path, &other).answer.status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(kit_commit(&k, "a", 7, own.epoch, 20).status,
                  VOW_STATUS_OWNED);
    kit_close(&k);
    check_cached(f.path, "a", 'v', 20);
    folder_close(&f);
}

TEST(sqlite_cache, a_result_that_is_put_replaces_the_one_before)
{
    struct folder f;
    struct kit k;
    struct kit_answer a;
    folder_open(&f);
    settle(f.path, "a", 'v', 10, KIT_LONG_MS);
    check_cached(f.path, "a", 'v', 10);
    kit_open(&k, f.path);
    struct kit_answer own = kit_claim(&k, "refresh of a", 7);
    vow_commit_request put = {.hold = {.name = vow_name_of("a"),
                                       .token = kit_token(7),
                                       .epoch = own.epoch},
                              .outcome = VOW_OUTCOME_DONE,
                              .flags = VOW_COMMIT_PUT,
                              .ttl_ms = KIT_LONG_MS};
    k.store->ops->commit(k.store, &put, kit_on_answer, &a);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    kit_close(&k);
    check_cached(f.path, "a", 0, 0);
    folder_close(&f);
}

TEST(sqlite_cache, an_expired_result_is_gone)
{
    struct folder f;
    struct find found;
    uint64_t since;
    folder_open(&f);
    settle(f.path, "a", 'v', 10, KIT_LONG_MS);
    check_cached(f.path, "a", 'v', 10);
    since = kit_now_ms();
    settle(f.path, "a", 'w', 10, 200);
    do {
        vow_claim_request peek = kit_ask("a", kit_now_ms());
        found = find_as(f.path, &peek);
        CHECK(found.answer.status == VOW_STATUS_OWNED ||
              found.answer.first == 'w');
    } while (found.answer.status != VOW_STATUS_OWNED);
    CHECK(kit_now_ms() - since >= 200);
    folder_close(&f);
}

/* Names with the same slot: the first byte of the hash decides. */
TEST(sqlite_cache, names_of_one_slot_are_not_confused)
{
    char other[32];
    struct folder f;
    unsigned n = 0;
    do {
        snprintf(other, sizeof(other), "b %u", n++);
    } while (vow_name_of(other).hash[0] != vow_name_of("a").hash[0]);
    folder_open(&f);
    settle(f.path, "a", 'a', 10, KIT_LONG_MS);
    check_cached(f.path, "a", 'a', 10);
    settle(f.path, other, 'b', 20, KIT_LONG_MS);
    check_cached(f.path, other, 'b', 20);
    check_cached(f.path, "a", 'a', 10);
    forget(f.path, other);
    check_cached(f.path, "a", 'a', 10);
    check_gone(f.path, other);
    folder_close(&f);
}

TEST(sqlite_cache, a_result_for_waiters_is_not_in_the_cache)
{
    struct folder f;
    folder_open(&f);
    settle(f.path, "b", 'b', 10, KIT_LONG_MS);
    check_cached(f.path, "b", 'b', 10);
    settle(f.path, "a", 'a', 10, 0);
    check_gone(f.path, "a");
    folder_close(&f);
}

TEST(sqlite_cache, a_removed_database_has_no_results)
{
    static const char *const files[] = {"vow.db", "vow.db-wal", "vow.db-shm"};
    struct folder f;
    char path[600];
    folder_open(&f);
    settle(f.path, "a", 'v', 10, KIT_LONG_MS);
    check_cached(f.path, "a", 'v', 10);
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", f.path, files[i]);
        CHECK(unlink(path) == 0 || errno == ENOENT);
    }
    check_gone(f.path, "a");
    folder_close(&f);
}

TEST(sqlite_cache, a_file_whose_value_is_gone_is_gone)
{
    struct folder f;
    char command[700];
    folder_open(&f);
    settle(f.path, "a", 'v', 100000, KIT_LONG_MS);
    check_cached(f.path, "a", 'v', 100000);
    snprintf(command, sizeof(command), "rm '%s'/val/*", f.path);
    CHECK_INT_EQ(system(command), 0);
    check_gone(f.path, "a");
    folder_close(&f);
}

/* The cache of another boot, clock or database; of another format; a cache that
 * was cut, or written over. The database has the result. */
TEST(sqlite_cache, what_is_not_sound_does_not_count)
{
    struct folder f;
    folder_open(&f);
    settle(f.path, "a", 'v', 5000, KIT_LONG_MS);
    for (off_t at = 0; at < 80; at++) { /* the header */
        unsigned char byte;
        check_cached(f.path, "a", 'v', 5000);
        int fd = cache_open(f.path);
        CHECK(pread(fd, &byte, 1, at) == 1);
        byte ^= 255;
        CHECK(pwrite(fd, &byte, 1, at) == 1);
        struct find found = find(f.path, "a");
        CHECK(!found.cached);
        CHECK_UINT_EQ(found.answer.size, 5000);
        CHECK(close(fd) == 0);
    }
    off_t slot = SLOTS + (off_t)vow_name_of("a").hash[0] * SLOT_SIZE;
    for (off_t size = 0; size < slot + 6000; size += size < slot ? 4099 : 211) {
        check_cached(f.path, "a", 'v', 5000);
        int fd = cache_open(f.path);
        CHECK(ftruncate(fd, size) == 0);
        struct find found = find(f.path, "a");
        CHECK_UINT_EQ(found.answer.size, 5000);
        CHECK_INT_EQ(found.answer.first, 'v');
        CHECK(close(fd) == 0);
    }
    for (int i = 0; i < 100; i++) { /* sizes and stamp */
        uint64_t seed = test_seed() + (uint64_t)i;
        check_cached(f.path, "a", 'v', 5000);
        int fd = cache_open(f.path);
        off_t at = slot + (off_t)(test_random(&seed) % 8);
        unsigned char byte = (unsigned char)test_random(&seed);
        CHECK(pwrite(fd, &byte, 1, at) == 1);
        struct find found = find(f.path, "a");
        CHECK_UINT_EQ(found.answer.size, 5000);
        CHECK(close(fd) == 0);
    }
    folder_close(&f);
}

/* A folder in the place of the cache: it can be neither read nor made, and a
 * result that could not be dropped is not replaced. */
TEST(sqlite_cache, a_cache_that_cannot_be_made_is_not_needed)
{
    struct folder f;
    char path[600];
    folder_open(&f);
    settle(f.path, "a", 'v', 10, KIT_LONG_MS);
    snprintf(path, sizeof(path), "%s/cache", f.path);
    CHECK(mkdir(path, 0700) == 0);
    for (int i = 0; i < 3; i++) {
        struct find found = find(f.path, "a");
        CHECK(!found.cached);
        CHECK_UINT_EQ(found.answer.size, 10);
    }
    CHECK(rmdir(path) == 0);
    check_cached(f.path, "a", 'v', 10);
    folder_close(&f);
}

/* ---- processes ----------------------------------------------------------- */

struct race {
    atomic_uint floor; /* results below were forgotten */
    atomic_uint cached, found;
    atomic_uint ready;
    atomic_bool over;
};

/* Values have as many bytes as their number, so that a mixed result shows. */
static void race_look(const char *folder, struct race *r)
{
    atomic_fetch_add(&r->ready, 1);
    while (!atomic_load(&r->over)) {
        vow_claim_request request = kit_ask("a", (uint64_t)getpid());
        request.flags = VOW_CLAIM_NOWAIT;
        unsigned floor = atomic_load(&r->floor);
        struct find f = find_as(folder, &request);
        if (f.answer.status != VOW_STATUS_WAITING) {
            CHECK_UINT_EQ(f.answer.status, VOW_STATUS_SETTLED);
            CHECK(f.answer.size >= floor);
            CHECK_INT_EQ(f.answer.first, 'a' + (int)(f.answer.size % 26));
            atomic_fetch_add(f.cached ? &r->cached : &r->found, 1);
        }
    }
    _exit(0);
}

TEST(sqlite_cache, no_process_finds_what_another_has_forgotten)
{
    enum { LOOKERS = 3, ROUNDS = 60 };
    struct folder f;
    pid_t pids[LOOKERS];
    struct race *r = kit_shared(sizeof(*r));
    folder_open(&f);
    settle(f.path, "a", 'a', 26, KIT_LONG_MS);
    for (size_t i = 0; i < LOOKERS; i++) {
        pids[i] = kit_child();
        if (pids[i] == 0)
            race_look(f.path, r);
    }
    kit_await(&r->ready, LOOKERS);
    for (unsigned n = 27; n < 27 + ROUNDS; n++) {
        unsigned seen = atomic_load(&r->cached);
        while (n % 4 == 0 && atomic_load(&r->cached) == seen)
            kit_nap_ms(1); /* the old result is surely in the cache */
        settle(f.path, "a", (char)('a' + n % 26), n, KIT_LONG_MS);
        atomic_store(&r->floor, n);
    }
    atomic_store(&r->over, true);
    for (size_t i = 0; i < LOOKERS; i++)
        kit_wait(pids[i]);
    CHECK(atomic_load(&r->cached) > 0);
    CHECK(atomic_load(&r->found) > 0);
    folder_close(&f);
}

/* ---- memory --------------------------------------------------------------- */

/* A claim from the cache, and a claim that adds a result to the cache, answer
 * with the result or with VOW_ENOMEM. */
FAULT_SWEEP(sqlite_cache, no_memory_is_told, FAULT_ALLOC)
{
    static const size_t sizes[] = {300, 10000, 70000};
    struct folder f;
    folder_open(&f);
    for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct find found;
        size_t size = sizes[i / 2];
        vow_claim_request request = kit_ask("a", 77);
        if (i % 2 == 0)
            settle(f.path, "a", (char)('a' + i), size, KIT_LONG_MS);
        VOW_AUTO(vow_future)
        opened = vow_store_sqlite_open(w->loop, f.path, NULL);
        if (vow_state_of(opened) != VOW_FULFILLED) {
            CHECK(fault_explains(w, vow_error_code(vow_error_of(opened))));
            continue;
        }
        vow_store *s = vow_as_ptr(vow_get(opened));
        memset(&found, 0, sizeof(found));
        s->ops->claim(s, &request, on_found, &found);
        if (found.answer.code == 0) {
            CHECK_UINT_EQ(found.answer.status, VOW_STATUS_SETTLED);
            CHECK_UINT_EQ(found.answer.size, size);
        } else {
            CHECK(fault_explains(w, found.answer.code));
        }
        VOW_AUTO(vow_future) closed = s->ops->close(s);
        int rc = vow_loop_run_until(w->loop, closed);
        CHECK(rc == 0 || fault_explains(w, rc));
        while (uv_run(vow_loop_uv(w->loop), UV_RUN_NOWAIT) != 0)
            continue;
    }
    folder_close(&f);
}

/* The command has its answer: it does not wait behind writers to be faster next
 * time. The other one would be passed over after a while. */
TEST(sqlite_cache, nothing_is_added_while_another_process_has_the_turn)
{
    struct folder f;
    uint64_t ticket;
    char path[300];
    folder_open(&f);
    settle(f.path, "a", 'a', 10, KIT_LONG_MS);
    int dir = open(f.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct vow__file_line *line = vow__file_line_open(dir);
    CHECK(line != NULL);
    CHECK(vow__file_turn_take(line, getpid(), UINT64_MAX, VOW__FILE_STUCK_MS,
                              &ticket));
    CHECK_UINT_EQ(find(f.path, "a").answer.status, VOW_STATUS_SETTLED);
    snprintf(path, sizeof(path), "%s/cache", f.path);
    CHECK(access(path, F_OK) != 0);
    vow__file_turn_pass(line, ticket);
    CHECK_UINT_EQ(find(f.path, "a").answer.status, VOW_STATUS_SETTLED);
    CHECK(access(path, F_OK) == 0);
    CHECK(find(f.path, "a").cached);
    vow__file_line_close(line);
    close(dir);
    folder_close(&f);
}
