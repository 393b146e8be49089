/* SPDX-License-Identifier: MIT */
/* sqlite_fault_test.c - every call of SQLite's to the system fails in turn, and
 * every allocation of ours.
 *
 * HOW   A VFS between SQLite and the system counts the calls that may fail, and
 *       lets number n fail: once, or for ever from then on. What a step says it
 *       did must have happened, and what it says it did not must not; and when
 *       the trouble has ended, the same store goes on.
 */
#include "fault.h"
#include "sqlite_kit.h"

/* ---- a system that fails ------------------------------------------------- */

static struct {
    unsigned calls;
    unsigned fail_at; /* 0: never */
    bool for_ever;
    bool fired;
    sqlite3_int64 room;   /* for a file on the disk; 0: any */
    sqlite3_int64 synced; /* bytes of the log that are on the disk */
} trouble;

static bool fails(void)
{
    trouble.calls++;
    bool now = trouble.fail_at > 0 &&
               (trouble.calls == trouble.fail_at ||
                (trouble.for_ever && trouble.calls > trouble.fail_at));
    trouble.fired |= now;
    return now;
}

struct shim {
    sqlite3_file base;
    sqlite3_file *real;
    bool is_log;
};

static sqlite3_vfs *system_vfs(void)
{
    return sqlite3_vfs_find("unix");
}

static sqlite3_file *real_of(sqlite3_file *f)
{
    return ((struct shim *)f)->real;
}

static int on_close(sqlite3_file *f)
{
    return real_of(f)->pMethods->xClose(real_of(f));
}

static int on_read(sqlite3_file *f, void *to, int n, sqlite3_int64 at)
{
    return fails() ? SQLITE_IOERR_READ
                   : real_of(f)->pMethods->xRead(real_of(f), to, n, at);
}

static int on_write(sqlite3_file *f, const void *from, int n, sqlite3_int64 at)
{
    if (fails())
        return trouble.calls % 2 == 0 ? SQLITE_FULL : SQLITE_IOERR_WRITE;
    if (trouble.room > 0 && at + n > trouble.room)
        return SQLITE_FULL;
    return real_of(f)->pMethods->xWrite(real_of(f), from, n, at);
}

static int on_truncate(sqlite3_file *f, sqlite3_int64 size)
{
    return fails() ? SQLITE_IOERR_TRUNCATE
                   : real_of(f)->pMethods->xTruncate(real_of(f), size);
}

static int on_sync(sqlite3_file *f, int flags)
{
    if (fails())
        return SQLITE_IOERR_FSYNC;
    if (((struct shim *)f)->is_log)
        (void)real_of(f)->pMethods->xFileSize(real_of(f), &trouble.synced);
    return real_of(f)->pMethods->xSync(real_of(f), flags);
}

static int on_size(sqlite3_file *f, sqlite3_int64 *size)
{
    return fails() ? SQLITE_IOERR_FSTAT
                   : real_of(f)->pMethods->xFileSize(real_of(f), size);
}

static int on_lock(sqlite3_file *f, int type)
{
    return fails() ? SQLITE_IOERR_LOCK
                   : real_of(f)->pMethods->xLock(real_of(f), type);
}

static int on_unlock(sqlite3_file *f, int type)
{
    return real_of(f)->pMethods->xUnlock(real_of(f), type);
}

static int on_reserved(sqlite3_file *f, int *is)
{
    return real_of(f)->pMethods->xCheckReservedLock(real_of(f), is);
}

static int on_control(sqlite3_file *f, int op, void *arg)
{
    return real_of(f)->pMethods->xFileControl(real_of(f), op, arg);
}

static int on_sector(sqlite3_file *f)
{
    return real_of(f)->pMethods->xSectorSize(real_of(f));
}

static int on_device(sqlite3_file *f)
{
    return real_of(f)->pMethods->xDeviceCharacteristics(real_of(f));
}

static int on_shm_map(sqlite3_file *f, int page, int size, int extend,
                      void volatile **at)
{
    return fails() ? SQLITE_IOERR_SHMMAP
                   : real_of(f)->pMethods->xShmMap(real_of(f), page, size,
                                                   extend, at);
}

static int on_shm_lock(sqlite3_file *f, int offset, int n, int flags)
{
    if ((flags & SQLITE_SHM_LOCK) != 0 && fails())
        return SQLITE_IOERR_SHMLOCK;
    return real_of(f)->pMethods->xShmLock(real_of(f), offset, n, flags);
}

static void on_shm_barrier(sqlite3_file *f)
{
    real_of(f)->pMethods->xShmBarrier(real_of(f));
}

static int on_shm_unmap(sqlite3_file *f, int remove)
{
    return real_of(f)->pMethods->xShmUnmap(real_of(f), remove);
}

static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = on_close,
    .xRead = on_read,
    .xWrite = on_write,
    .xTruncate = on_truncate,
    .xSync = on_sync,
    .xFileSize = on_size,
    .xLock = on_lock,
    .xUnlock = on_unlock,
    .xCheckReservedLock = on_reserved,
    .xFileControl = on_control,
    .xSectorSize = on_sector,
    .xDeviceCharacteristics = on_device,
    .xShmMap = on_shm_map,
    .xShmLock = on_shm_lock,
    .xShmBarrier = on_shm_barrier,
    .xShmUnmap = on_shm_unmap,
};

static int on_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f,
                   int flags, int *out_flags)
{
    struct shim *s = (struct shim *)f;
    (void)vfs;
    s->base.pMethods = NULL;
    s->is_log = (flags & SQLITE_OPEN_WAL) != 0;
    s->real = (sqlite3_file *)(void *)(s + 1);
    if (fails())
        return SQLITE_CANTOPEN;
    int rc = system_vfs()->xOpen(system_vfs(), name, s->real, flags, out_flags);
    if (s->real->pMethods != NULL)
        s->base.pMethods = &methods;
    return rc;
}

static int on_delete(sqlite3_vfs *vfs, const char *name, int sync)
{
    (void)vfs;
    return fails() ? SQLITE_IOERR_DELETE
                   : system_vfs()->xDelete(system_vfs(), name, sync);
}

static int on_access(sqlite3_vfs *vfs, const char *name, int flags, int *out)
{
    (void)vfs;
    return fails() ? SQLITE_IOERR_ACCESS
                   : system_vfs()->xAccess(system_vfs(), name, flags, out);
}

static int on_path(sqlite3_vfs *vfs, const char *name, int n, char *out)
{
    (void)vfs;
    return fails() ? SQLITE_CANTOPEN
                   : system_vfs()->xFullPathname(system_vfs(), name, n, out);
}

static void install(void)
{
    static sqlite3_vfs shim;
    CHECK_INT_EQ(sqlite3_initialize(), SQLITE_OK);
    shim = *system_vfs();
    shim.zName = "shim";
    shim.szOsFile += (int)sizeof(struct shim);
    shim.xOpen = on_open;
    shim.xDelete = on_delete;
    shim.xAccess = on_access;
    shim.xFullPathname = on_path;
    CHECK_INT_EQ(sqlite3_vfs_register(&shim, 1), SQLITE_OK);
}

/* ---- a life with it ------------------------------------------------------ */

static void check_code(int code)
{
    CHECK(code == 0 || (trouble.fired && code == VOW_ESTORE));
}

/* A step that the disk did not confirm has happened, and can be repeated. */
static struct kit_answer claim_surely(struct kit *k)
{
    struct kit_answer a = kit_claim(k, "a", 1);
    if (a.code != VOW_EUNSURE)
        return a;
    CHECK(trouble.fired && kit_why(k)[0] != '\0');
    trouble.fail_at = 0;
    return kit_claim(k, "a", 1);
}

struct life {
    bool opened, claimed, committed;
    uint64_t epoch;
};

/* Whatever can be done with a store, and what came of it. */
static struct life live(struct kit *k, const char *folder)
{
    struct life l = {.opened = false};
    char why[600] = "";
    int code = kit_try_open(k, folder, 50, why);
    check_code(code);
    CHECK((code == 0) == (why[0] == '\0'));
    if (code != 0)
        return l;
    l.opened = true;
    struct kit_answer a = claim_surely(k);
    check_code(a.code);
    l.claimed = a.code == 0;
    CHECK(a.code == 0 || kit_why(k)[0] != '\0');
    l.epoch = a.epoch;
    if (l.claimed) {
        check_code(kit_pulse(k, "a", 1, l.epoch).code);
        a = kit_commit(k, "a", 1, l.epoch, 5);
        check_code(a.code);
        l.committed = a.code == 0;
    }
    check_code(kit_peek(k, "a").code);
    check_code(kit_acquire(k, "p", 1).code);
    check_code(kit_release(k, "p", 1).code);
    check_code(kit_claim(k, "b", 2).code);
    return l;
}

/* The trouble is over, and the same store goes on. */
static void go_on(struct kit *k, struct life l)
{
    struct kit_answer a = kit_claim(k, "a", 3);
    CHECK_INT_EQ(a.code, 0);
    CHECK_UINT_EQ(a.status, l.committed ? VOW_STATUS_SETTLED
                            : l.claimed ? VOW_STATUS_WAITING
                                        : VOW_STATUS_OWNED);
    if (l.committed)
        CHECK_UINT_EQ(a.size, 5);
    else if (l.claimed)
        CHECK_UINT_EQ(kit_commit(k, "a", 1, l.epoch, 5).status,
                      VOW_STATUS_OWNED);
    CHECK_INT_EQ(kit_release(k, "p", 1).code, 0);
    CHECK_UINT_EQ(kit_acquire(k, "p", 4).status, VOW_STATUS_OWNED);
    CHECK_INT_EQ(kit_claim(k, "c", 5).code, 0);
    CHECK_UINT_EQ(k->damages, 0);
}

static bool one_fault(unsigned nth, bool for_ever)
{
    struct folder f;
    struct kit k;
    folder_open(&f);
    trouble.calls = 0;
    trouble.fail_at = nth;
    trouble.for_ever = for_ever;
    trouble.fired = false;
    struct life l = live(&k, f.path);
    bool fired = trouble.fired;
    trouble.fail_at = 0;
    if (!l.opened)
        kit_open(&k, f.path);
    go_on(&k, l);
    kit_close(&k);
    kit_open(&k, f.path); /* and so does who comes anew */
    CHECK_UINT_EQ(kit_claim(&k, "a", 6).status,
                  l.claimed ? VOW_STATUS_SETTLED : VOW_STATUS_WAITING);
    CHECK_UINT_EQ(k.damages, 0);
    kit_close(&k);
    folder_close(&f);
    return fired;
}

static void sweep(bool for_ever)
{
    unsigned n = 1;
    install();
    CHECK(!one_fault(0, false));
    while (one_fault(n, for_ever))
        n++;
    CHECK(n > 100); /* it has been in the way at all */
}

TEST(sqlite_fault, each_call_to_the_system_fails_once)
{
    sweep(false);
}

TEST(sqlite_fault, each_call_to_the_system_fails_and_all_behind_it)
{
    sweep(true);
}

/* ---- what must survive --------------------------------------------------- */

/* A copy of the folder as the disk has it when the power fails now, in the next
 * boot. */
static void lose_power(const char *folder, char copy[400])
{
    char command[2000];
    snprintf(copy, 400, "%s/copy", folder);
    snprintf(command, sizeof(command),
             "rm -rf '%s'; mkdir -m 700 '%s' && cp -p '%s'/vow.db* '%s' && "
             "cp -pr '%s/val' '%s' && rm -f '%s/vow.db-shm' && "
             "truncate -s %lld '%s/vow.db-wal'",
             copy, copy, folder, copy, folder, copy, copy,
             (long long)trouble.synced, copy);
    CHECK_INT_EQ(system(command), 0);
    kit_sql(copy, "UPDATE meta SET boot='another'");
}

static uint64_t limit_there(const char *folder, const char *pool)
{
    struct kit k;
    vow_pool_info info = {.label = NULL};
    vow_name name = vow_name_of(pool);
    kit_open(&k, folder);
    k.store->ops->limit(k.store, &name, NULL, NULL, kit_on_pool, &info);
    kit_close(&k);
    return info.limits.concurrent;
}

static struct kit_answer once_there(const char *folder, const char *name)
{
    struct kit k;
    kit_open(&k, folder);
    vow_claim_request ask = kit_ask(name, 77);
    ask.mode = VOW_ONCE;
    ask.flags = VOW_CLAIM_NOWAIT;
    struct kit_answer a = kit_claim_as(&k, &ask);
    kit_close(&k);
    return a;
}

/* The log is cut where it was synced last: what was answered before must be
 * there, and a result of shared work is a cache. */
TEST(sqlite_fault, what_must_survive_is_on_the_disk_before_the_answer)
{
    enum { LONG = 100 * 1000 };
    struct folder f;
    struct kit k;
    char copy[400];
    vow_name pool = vow_name_of("pool");
    vow_pool_limits limits = {.concurrent = 7};
    vow_pool_info info;
    folder_open(&f);
    install();
    kit_open(&k, f.path);
    k.store->ops->limit(k.store, &pool, &limits, "pool", kit_on_pool, &info);
    CHECK_UINT_EQ(info.limits.concurrent, 7);
    lose_power(f.path, copy);
    CHECK_UINT_EQ(limit_there(copy, "pool"), 7);

    vow_claim_request once = kit_ask("pay", 1);
    once.mode = VOW_ONCE;
    struct kit_answer a = kit_claim_as(&k, &once);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    lose_power(f.path, copy);
    struct kit_answer b = once_there(copy, "pay");
    CHECK_UINT_EQ(b.status, VOW_STATUS_DOUBT);
    CHECK_UINT_EQ(b.epoch, a.epoch);

    CHECK_UINT_EQ(kit_commit_mode(&k, "pay", 1, a.epoch, LONG, VOW_ONCE).status,
                  VOW_STATUS_OWNED);
    uint64_t shared = kit_claim(&k, "cache", 2).epoch;
    CHECK_UINT_EQ(kit_commit(&k, "cache", 2, shared, 5).status,
                  VOW_STATUS_OWNED);
    lose_power(f.path, copy);
    CHECK_UINT_EQ(once_there(copy, "pay").size, LONG);
    CHECK_UINT_EQ(limit_there(copy, "pool"), 7);
    struct kit again;
    kit_open(&again, copy);
    CHECK_UINT_EQ(kit_peek(&again, "cache").status, VOW_STATUS_NONE);
    CHECK(kit_claim(&again, "new", 9).epoch > shared);
    kit_close(&again);

    k.store->ops->forget(k.store, &once.name, 0, kit_on_answer, &b);
    CHECK_UINT_EQ(b.status, VOW_STATUS_NONE);
    lose_power(f.path, copy);
    CHECK_UINT_EQ(once_there(copy, "pay").status, VOW_STATUS_OWNED);
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_fault, the_highest_fence_is_on_the_disk_before_the_answer)
{
    enum { LATER_US = 1000 * 1000 * 1000 }; /* than epochs are set aside for */
    struct folder f;
    struct kit k;
    struct kit again;
    char copy[400];
    folder_open(&f);
    install();
    kit_open(&k, f.path);
    uint64_t last = kit_claim(&k, "first", 1).epoch;
    for (uint64_t i = 2; i < 5; i++) {
        vow_claim_request ask = kit_ask("next", i);
        ask.flags = VOW_CLAIM_FORCE;
        ask.floor = last + LATER_US;
        struct kit_answer a = kit_claim_as(&k, &ask);
        CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
        CHECK(a.epoch > ask.floor);
        last = a.epoch;
        CHECK_UINT_EQ(kit_commit(&k, "next", i, last, 5).status,
                      VOW_STATUS_OWNED);
        lose_power(f.path, copy);
        kit_open(&again, copy);
        CHECK(kit_claim(&again, "new", 9).epoch > last);
        kit_close(&again);
    }
    kit_close(&k);
    folder_close(&f);
}

/* ---- an upgrade ----------------------------------------------------------- */

static void old_folder(const char *folder)
{
    static const char tables[] =
        "PRAGMA journal_mode=WAL;PRAGMA application_id=1987016481;BEGIN;"
        "CREATE TABLE meta(boot TEXT,clock INT,base INT,high INT);"
        "CREATE TABLE rec(h BLOB PRIMARY KEY,st INT,ends INT,inst BLOB,"
        "file TEXT,body BLOB,val BLOB)WITHOUT ROWID;"
        "CREATE TABLE once(h BLOB);CREATE TABLE wait(h BLOB);"
        "CREATE TABLE chunk(h BLOB);"
        "CREATE TABLE pool(id BLOB PRIMARY KEY,law BLOB,label TEXT,"
        "concurrent INT,rate INT,span INT,held INT,holders INT,waiting INT,"
        "seq INT,fence INT,spent INT,next INT)WITHOUT ROWID;"
        "CREATE TABLE place(pool BLOB,tok BLOB,inst BLOB,held INT,seq INT,"
        "weight INT,ends INT,fence INT,again INT,PRIMARY KEY(pool,tok))"
        "WITHOUT ROWID;"
        "CREATE INDEX place_line ON place(pool,held,seq);"
        "CREATE TABLE spent(pool BLOB,at INT,began INT,weight INT,"
        "PRIMARY KEY(pool,at))WITHOUT ROWID;"
        "INSERT INTO meta VALUES('another',1,1000,2000);"
        "PRAGMA user_version=1;COMMIT;";
    char sql[400];
    char hex[2 * sizeof(vow_name) + 1];
    vow_name name = vow_name_of("pay");
    for (size_t i = 0; i < sizeof(name.hash); i++)
        snprintf(hex + 2 * i, 3, "%02x", name.hash[i]);
    kit_sql(folder, tables);
    /* It ran in mode once, with epoch 5. */
    snprintf(sql, sizeof(sql),
             "INSERT INTO rec VALUES(x'%s',1,10,x'','',x'%s',NULL)", hex,
             "07070707070707070707070707070707"
             "00000200050100010000000000");
    kit_sql(folder, sql);
}

/* The tables are those of the earlier vow, or of this one. */
TEST(sqlite_fault, an_upgrade_that_fails_has_changed_nothing)
{
    unsigned n = 1;
    bool fired = true;
    install();
    for (; fired; n++) {
        struct folder f;
        struct kit k;
        folder_open(&f);
        trouble.fail_at = 0;
        old_folder(f.path);
        trouble.calls = 0;
        trouble.fail_at = n;
        trouble.for_ever = n % 2 == 0;
        trouble.fired = false;
        int code = kit_try_open(&k, f.path, 50, NULL);
        check_code(code);
        fired = trouble.fired;
        trouble.fail_at = 0;
        if (code == 0)
            kit_close(&k);
        struct kit_answer a = once_there(f.path, "pay");
        CHECK_UINT_EQ(a.status, VOW_STATUS_DOUBT);
        CHECK_UINT_EQ(a.epoch, 5);
        folder_close(&f);
    }
    CHECK(n > 50);
}

/* Then all of it is put into the file, and it is begun anew. */
TEST(sqlite_fault, a_log_that_fills_the_disk_is_emptied)
{
    enum { ROOM = 200 * 1000 };
    struct folder f;
    struct kit k;
    folder_open(&f);
    install();
    kit_open(&k, f.path);
    trouble.room = ROOM;
    for (uint64_t token = 1; token <= 200; token++) {
        char name[16];
        snprintf(name, sizeof(name), "%d", (int)token % 20);
        struct kit_answer a = kit_claim(&k, name, token);
        CHECK_INT_EQ(a.code, 0);
        if (a.status == VOW_STATUS_OWNED)
            CHECK_INT_EQ(kit_commit(&k, name, token, a.epoch, 10).code, 0);
        CHECK_INT_EQ(kit_acquire(&k, "p", token).code, 0);
        CHECK_INT_EQ(kit_release(&k, "p", token).code, 0);
    }
    kit_close(&k);
    folder_close(&f);
}

/* The new file has no room: the damaged one stays until it has. */
TEST(sqlite_fault, a_full_disk_loses_nothing_of_a_damaged_file)
{
    static const sqlite3_int64 rooms[] = {1, 5000, 40 * 1000};
    install();
    for (size_t i = 0; i < sizeof(rooms) / sizeof(rooms[0]); i++) {
        struct folder f;
        struct kit k;
        char why[600] = "";
        vow_name pool = vow_name_of("pool");
        vow_pool_limits limits = {.concurrent = 7};
        vow_pool_info info;
        folder_open(&f);
        kit_open(&k, f.path);
        k.store->ops->limit(k.store, &pool, &limits, "", kit_on_pool, &info);
        vow_claim_request once = kit_ask("pay", 1);
        once.mode = VOW_ONCE;
        uint64_t epoch = kit_claim_as(&k, &once).epoch;
        CHECK_UINT_EQ(kit_commit_mode(&k, "pay", 1, epoch, 5, VOW_ONCE).status,
                      VOW_STATUS_OWNED);
        kit_close(&k);
        kit_sql(f.path, "DELETE FROM meta");
        trouble.room = rooms[i];
        CHECK_INT_EQ(kit_try_open(&k, f.path, 50, why), VOW_ESTORE);
        CHECK(strstr(why, "space") != NULL);
        trouble.room = 0;
        CHECK_UINT_EQ(once_there(f.path, "pay").size, 5);
        CHECK_UINT_EQ(limit_there(f.path, "pool"), 7);
        folder_close(&f);
    }
}

enum { RUNS = 4000 };

/* A checkpoint that could not sync leaves the log in doubt for the next
 * step. */
static void check_long_life(int code)
{
    CHECK(code == 0 ||
          (trouble.fired && (code == VOW_ESTORE || code == VOW_EUNSURE)));
}

/* Long enough for checkpoints, which fail too. What was not done can be done
 * again, and what was done has been. */
TEST(sqlite_fault, a_long_life_with_random_faults)
{
    struct folder f;
    struct kit k;
    char why[600];
    uint64_t seed = test_seed();
    unsigned failed = 0;
    folder_open(&f);
    install();
    CHECK_INT_EQ(kit_try_open(&k, f.path, 50, why), 0);
    for (uint64_t token = 1; token <= RUNS; token++) {
        trouble.fail_at =
            trouble.calls + 1 + (unsigned)(test_random(&seed) % 900);
        trouble.fired = false;
        struct kit_answer a = kit_claim(&k, "a", token);
        for (; a.code != 0; a = kit_claim(&k, "a", token), failed++)
            check_long_life(a.code);
        CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
        CHECK_UINT_EQ(a.takeovers, 0);
        uint64_t epoch = a.epoch;
        a = kit_abandon(&k, "a", token, epoch);
        for (; a.code != 0; a = kit_abandon(&k, "a", token, epoch), failed++) {
            check_long_life(a.code);
            if (a.code == VOW_ESTORE)
                CHECK_UINT_EQ(kit_claim(&k, "a", token).epoch, epoch);
        }
        CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    }
    trouble.fail_at = 0;
    CHECK(failed > 10);
    CHECK_UINT_EQ(k.damages, 0);
    kit_close(&k);
    folder_close(&f);
}

/* ---- memory -------------------------------------------------------------- */

static void on_records(int code, const vow_record *r, size_t n, void *user)
{
    (void)r;
    (void)n;
    *(int *)user = code;
}

static void on_places(int code, const vow_pool_permit *p, size_t n, void *user)
{
    (void)p;
    (void)n;
    *(int *)user = code;
}

static void on_pools(int code, const vow_pool_info *p, size_t n, void *user)
{
    (void)p;
    (void)n;
    *(int *)user = code;
}

static void fine(struct world *w, int code)
{
    CHECK(code == 0 || fault_explains(w, code));
}

static void use(struct world *w, vow_store *s)
{
    int code = 1;
    VOW_AUTO(vow_bytes) value = NULL;
    vow_claim_request ask = kit_ask("a", 1);
    s->ops->claim(s, &ask, on_records, &code);
    fine(w, code);
    vow_hold hold = {.name = ask.name, .token = ask.token, .epoch = 1};
    s->ops->pulse(s, &hold, 1, KIT_LONG_MS, on_records, &code);
    fine(w, code);
    fine(w, vow_bytes_new(w->loop, NULL, 100000, &value));
    vow_commit_request commit = {.hold = hold,
                                 .outcome = VOW_OUTCOME_DONE,
                                 .flags = VOW_COMMIT_PUT,
                                 .value = value,
                                 .ttl_ms = KIT_LONG_MS};
    s->ops->commit(s, &commit, on_records, &code);
    fine(w, code);
    s->ops->list(s, on_records, &code);
    fine(w, code);
    vow_permit_request place = {.pool = ask.name,
                                .limits_of = ask.name,
                                .token = ask.token,
                                .weight = 1,
                                .lease_ms = KIT_LONG_MS};
    s->ops->acquire(s, &place, on_places, &code);
    fine(w, code);
    s->ops->pools(s, on_pools, &code);
    fine(w, code);
}

FAULT_SWEEP(sqlite_fault, no_memory_is_told_and_nothing_is_lost, FAULT_ALLOC)
{
    struct folder f;
    folder_open(&f);
    VOW_AUTO(vow_future) opened = vow_store_sqlite_open(w->loop, f.path, NULL);
    if (vow_state_of(opened) == VOW_FULFILLED) {
        vow_store *s = vow_as_ptr(vow_get(opened));
        use(w, s);
        VOW_AUTO(vow_future) closed = s->ops->close(s);
        int rc = vow_loop_run_until(w->loop, closed);
        CHECK(rc == 0 || fault_explains(w, rc));
        while (uv_run(vow_loop_uv(w->loop), UV_RUN_NOWAIT) != 0)
            continue; /* without a future of it, too */
    } else {
        CHECK(fault_explains(w, vow_error_code(vow_error_of(opened))));
    }
    folder_close(&f);
}
