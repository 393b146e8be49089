/* SPDX-License-Identifier: MIT */
/* sqlite_upgrade_test.c - a folder of schema version 1, which processes of an
 * earlier vow have left: what must survive the upgrade survives. */
#include "sqlite_kit.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

enum { OLD_RUNNING = 0, OLD_DONE = 1, OLD_FAILED = 2, BODY_MAX = 400 };

#define HOUR_US INT64_C(3600000000)
#define OLD_BASE INT64_C(7000000000000000) /* epochs above every date */

static const char version_1[] =
    "PRAGMA journal_mode=WAL;PRAGMA application_id=1987016481;BEGIN;"
    "CREATE TABLE meta(boot TEXT,clock INT,base INT,high INT);"
    "CREATE TABLE rec(h BLOB PRIMARY KEY,st INT,ends INT,inst BLOB,file TEXT,"
    "body BLOB,val BLOB)WITHOUT ROWID;"
    "CREATE TABLE once(h BLOB,epoch INT,ends INT,inst BLOB,file TEXT,body BLOB,"
    "val BLOB,PRIMARY KEY(h,epoch))WITHOUT ROWID;"
    "CREATE TABLE wait(h BLOB,inst BLOB,tok BLOB,epoch INT,read INT,"
    "PRIMARY KEY(h,inst))WITHOUT ROWID;"
    "CREATE TABLE chunk(h BLOB,seq INT,data BLOB,PRIMARY KEY(h,seq))"
    "WITHOUT ROWID;"
    "CREATE TABLE pool(id BLOB PRIMARY KEY,law BLOB,label TEXT,"
    "concurrent INT,rate INT,span INT,held INT,holders INT,waiting INT,"
    "seq INT,fence INT,spent INT,next INT)WITHOUT ROWID;"
    "CREATE TABLE place(pool BLOB,tok BLOB,inst BLOB,held INT,seq INT,"
    "weight INT,ends INT,fence INT,again INT,PRIMARY KEY(pool,tok))"
    "WITHOUT ROWID;"
    "CREATE INDEX place_line ON place(pool,held,seq);"
    "CREATE TABLE spent(pool BLOB,at INT,began INT,weight INT,"
    "PRIMARY KEY(pool,at))WITHOUT ROWID;"
    "PRAGMA user_version=1;COMMIT;";

/* ---- making the folder --------------------------------------------------- */

static int64_t boot_us(void)
{
    struct timespec t;
    CHECK(clock_gettime(CLOCK_BOOTTIME, &t) == 0);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static const char *this_boot(void)
{
    static char id[64];
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    CHECK(f != NULL && fgets(id, sizeof(id), f) != NULL);
    (void)fclose(f);
    id[strcspn(id, "\n")] = '\0';
    return id;
}

static sqlite3 *old_db(const char *folder)
{
    char path[400];
    sqlite3 *db;
    snprintf(path, sizeof(path), "%s/vow.db", folder);
    CHECK_INT_EQ(sqlite3_open(path, &db), SQLITE_OK);
    return db;
}

struct old_blobs {
    const void *blob;
    int size;
    const void *value;
    int length;
};
static const struct old_blobs NO_BLOBS;

/* Runs one statement; `name` is ?1, `blob` and `value` are ?2 and ?3. */
static void old_exec(const char *folder, const char *sql, const char *name,
                     const struct old_blobs *b)
{
    sqlite3 *db = old_db(folder);
    sqlite3_stmt *q = NULL;
    vow_name n = vow_name_of(name);
    CHECK_INT_EQ(sqlite3_prepare_v2(db, sql, -1, &q, NULL), SQLITE_OK);
    (void)sqlite3_bind_blob(q, 1, n.hash, sizeof(n.hash), SQLITE_STATIC);
    (void)sqlite3_bind_blob(q, 2, b->blob, b->size, SQLITE_STATIC);
    (void)sqlite3_bind_blob(q, 3, b->value, b->length, SQLITE_STATIC);
    CHECK_INT_EQ(sqlite3_step(q), SQLITE_DONE);
    (void)sqlite3_finalize(q);
    CHECK_INT_EQ(sqlite3_close(db), SQLITE_OK);
}

/* The folder was last used in the boot `boot`. */
static void old_folder(struct folder *f, const char *boot)
{
    char sql[300];
    char path[400];
    struct stat clock = {.st_ino = 0};
    folder_open(f);
    (void)umask(077);
    kit_sql(f->path, version_1);
    (void)stat("/proc/self/ns/time", &clock);
    snprintf(sql, sizeof(sql), "INSERT INTO meta VALUES('%s',%lld,%lld,%lld)",
             boot, (long long)clock.st_ino, (long long)OLD_BASE,
             (long long)(OLD_BASE + boot_us() + HOUR_US));
    kit_sql(f->path, sql);
    snprintf(path, sizeof(path), "%s/val", f->path);
    CHECK(mkdir(path, 0700) == 0);
}

static unsigned char *old_number(unsigned char *at, uint64_t n)
{
    for (; n > 127; n >>= 7)
        *at++ = (unsigned char)(n | 128);
    *at++ = (unsigned char)n;
    return at;
}

struct old_record {
    const char *name;
    unsigned state;
    bool shared; /* else of mode VOW_ONCE */
    uint64_t epoch;
    const char *value; /* a short value */
    const char *file;  /* or the file of a long value, with: */
    int size;
};

/* A record, as an owner that has died left it. */
static void old_record(const char *folder, const struct old_record *r)
{
    unsigned char body[BODY_MAX] = {7};
    char sql[300];
    const char *runner = "host:1";
    int64_t now_us = boot_us();
    int64_t ends_us = now_us + HOUR_US;
    const uint64_t numbers[] = {r->state,
                                0,
                                r->shared ? VOW_SHARED : VOW_ONCE,
                                0,
                                r->epoch,
                                (uint64_t)now_us,
                                0,
                                10000000,
                                1,
                                0 /* chunks */,
                                0,
                                strlen(r->name),
                                strlen(runner)};
    unsigned char *at = body + sizeof(vow_token);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        at = old_number(at, numbers[i]);
    at += snprintf((char *)at, 100, "%s%s", r->name, runner);
    const char *inst = r->state == OLD_RUNNING ? "'0123456789abcdef'" : "''";
    char value[20] = "?3";
    if (r->file != NULL)
        snprintf(value, sizeof(value), "%d", r->size);
    snprintf(sql, sizeof(sql),
             "INSERT INTO rec VALUES(?1,%d,%lld,CAST(%s AS BLOB),'%s',?2,%s)",
             r->state != OLD_RUNNING ? 2
             : r->shared             ? 0
                                     : 1,
             (long long)ends_us, inst, r->file == NULL ? "" : r->file, value);
    old_exec(folder, sql, r->name,
             &(const struct old_blobs){
                 .blob = body,
                 .size = (int)(at - body),
                 .value = r->value,
                 .length = r->value == NULL ? 0 : (int)strlen(r->value)});
}

static void old_pool(const char *folder, const char *name, const char *limits)
{
    char sql[300];
    snprintf(sql, sizeof(sql),
             "INSERT INTO pool VALUES(?1,?1,'%s',%s,0,0,0,0,5,0,"
             "9223372036854775807)",
             name, limits);
    old_exec(folder, sql, name, &NO_BLOBS);
}

/* ---- asking -------------------------------------------------------------- */

static struct kit_answer claim_once(struct kit *k, const char *name,
                                    uint64_t token)
{
    vow_claim_request ask = kit_ask(name, token);
    ask.mode = VOW_ONCE;
    return kit_claim_as(k, &ask);
}

static void keep_info(int code, const vow_pool_info *p, size_t n, void *user)
{
    vow_pool_info *to = user;
    *to = (vow_pool_info){.limits = {.concurrent = UINT32_MAX}};
    if (code == 0 && n == 1)
        *to = *p;
}

static vow_pool_info limits_of(struct kit *k, const char *name)
{
    vow_pool_info info;
    vow_name n = vow_name_of(name);
    k->store->ops->limit(k->store, &n, NULL, NULL, keep_info, &info);
    return info;
}

/* Asks for a start of a pool, or of a key of a pool. */
static struct kit_answer start_one(struct kit *k, const char *pool,
                                   const char *law)
{
    struct kit_answer a;
    vow_permit_request ask = {.pool = vow_name_of(pool),
                              .limits_of = vow_name_of(law),
                              .token = kit_token(1),
                              .weight = 1,
                              .lease_ms = KIT_LONG_MS};
    k->store->ops->acquire(k->store, &ask, kit_on_place_answer, &a);
    return a;
}

/* ---- what survives ------------------------------------------------------- */

TEST(sqlite_upgrade, a_doubt_stays_a_doubt_and_can_be_resolved)
{
    struct folder f;
    struct kit k;
    old_folder(&f, this_boot());
    old_record(f.path,
               &(struct old_record){.name = "pay", .epoch = OLD_BASE + 5});
    for (int i = 0; i < 2; i++) { /* also when the folder is opened again */
        kit_open(&k, f.path);
        struct kit_answer a = claim_once(&k, "pay", 1);
        CHECK_UINT_EQ(a.status, VOW_STATUS_DOUBT);
        CHECK_UINT_EQ(a.epoch, OLD_BASE + 5);
        CHECK_UINT_EQ(kit_peek(&k, "pay").status, VOW_STATUS_DOUBT);
        kit_close(&k);
    }
    kit_open(&k, f.path);
    vow_commit_request resolve = {.hold = {.name = vow_name_of("pay"),
                                           .epoch = OLD_BASE + 5,
                                           .mode = VOW_ONCE},
                                  .outcome = VOW_OUTCOME_ABANDONED,
                                  .flags = VOW_COMMIT_RESOLVE};
    struct kit_answer a;
    k.store->ops->commit(k.store, &resolve, kit_on_answer, &a);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    a = claim_once(&k, "pay", 2);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK(a.epoch > OLD_BASE + 5);
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_upgrade, work_that_was_done_once_is_not_done_again)
{
    struct folder f;
    struct kit k;
    old_folder(&f, this_boot());
    old_record(f.path, &(struct old_record){.name = "paid",
                                            .state = OLD_DONE,
                                            .epoch = OLD_BASE + 6,
                                            .value = "receipt"});
    old_record(f.path, &(struct old_record){.name = "refused",
                                            .state = OLD_FAILED,
                                            .epoch = OLD_BASE + 7,
                                            .value = "why"});
    kit_open(&k, f.path);
    struct kit_answer a = claim_once(&k, "paid", 1);
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK(!a.failed && a.size == 7 && a.first == 'r');
    CHECK_UINT_EQ(a.epoch, OLD_BASE + 6);
    a = claim_once(&k, "refused", 1);
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK(a.failed && a.size == 3 && a.first == 'w');
    kit_close(&k);
    folder_close(&f);
}

/* A value above 64 KiB lies in a file of its own, named after the name's hash,
 * in base64 for file names. */
TEST(sqlite_upgrade, a_long_result_of_work_that_was_done_once_is_read)
{
    enum { SIZE = 100000 };
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqr"
                                  "stuvwxyz0123456789-_";
    struct folder f;
    struct kit k;
    char file[100] = "";
    char path[400];
    vow_name n = vow_name_of("long");
    old_folder(&f, this_boot());
    for (size_t bit = 0; bit < 8 * sizeof(n.hash); bit += 6) {
        unsigned two = (unsigned)n.hash[bit / 8] << 8;
        if (bit / 8 + 1 < sizeof(n.hash))
            two |= n.hash[bit / 8 + 1];
        file[strlen(file)] = letters[two >> (10 - bit % 8) & 63];
    }
    strcat(file, ".30313233343536373839616263646566.1");
    old_record(f.path, &(struct old_record){.name = "long",
                                            .state = OLD_DONE,
                                            .epoch = OLD_BASE + 8,
                                            .file = file,
                                            .size = SIZE});
    snprintf(path, sizeof(path), "%s/val/%s", f.path, file);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    for (int i = 0; i < SIZE / 10; i++)
        CHECK(write(fd, "long value", 10) == 10);
    CHECK(close(fd) == 0);
    kit_open(&k, f.path);
    struct kit_answer a = claim_once(&k, "long", 1);
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK(a.size == SIZE && a.first == 'l');
    kit_close(&k);
    kit_open(&k, f.path); /* nothing has swept the file */
    CHECK_UINT_EQ(claim_once(&k, "long", 2).size, SIZE);
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_upgrade, limits_stay)
{
    struct folder f;
    struct kit k;
    old_folder(&f, this_boot());
    old_pool(f.path, "both", "7,3,60000000");
    old_pool(f.path, "jobs", "20,0,0");
    old_pool(f.path, "even", "0,1,100000");
    kit_open(&k, f.path);
    vow_pool_info info = limits_of(&k, "both");
    CHECK_UINT_EQ(info.limits.concurrent, 7);
    CHECK_UINT_EQ(info.limits.rate, 3);
    CHECK_UINT_EQ(info.limits.window_us, 60000000);
    CHECK_UINT_EQ(limits_of(&k, "jobs").limits.concurrent, 20);
    CHECK_UINT_EQ(limits_of(&k, "jobs").limits.rate, 0);
    CHECK_UINT_EQ(limits_of(&k, "even").limits.window_us, 100000);
    kit_close(&k);
    folder_close(&f);
}

/* The older version has begun as many as the rate allows. */
TEST(sqlite_upgrade, a_rate_counts_what_was_started_before)
{
    struct folder f;
    struct kit k;
    char sql[200];
    old_folder(&f, this_boot());
    old_pool(f.path, "p", "0,2,3600000000");
    snprintf(sql, sizeof(sql), "INSERT INTO spent VALUES(?1,%lld,%lld,2)",
             (long long)boot_us(), (long long)boot_us());
    old_exec(f.path, sql, "p", &NO_BLOBS);
    kit_sql(f.path, "UPDATE pool SET spent=2");
    kit_open(&k, f.path);
    CHECK_UINT_EQ(start_one(&k, "p", "p").status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(limits_of(&k, "p").rate_used, 2);
    kit_close(&k);
    folder_close(&f);
}

/* The clock of the other boot was ahead of the clock of now, or far behind; how
 * long ago a start was is not known. */
TEST(sqlite_upgrade, after_a_reboot_a_rate_counts_what_was_started_before)
{
    static const char *const starts[] = {"9000000000000000000", "1"};
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        struct folder f;
        struct kit k;
        char sql[300];
        old_folder(&f, "an-earlier-boot");
        old_pool(f.path, "p", "0,2,1000000000");
        snprintf(sql, sizeof(sql),
                 "INSERT INTO pool SELECT ?1,id,'key',concurrent,rate,span,0,0,"
                 "0,5,0,0,9223372036854775807 FROM pool");
        old_exec(f.path, sql, "key", &NO_BLOBS);
        for (int name = 0; name < 2; name++) {
            snprintf(sql, sizeof(sql), "INSERT INTO spent VALUES(?1,%s,%s,2)",
                     starts[i], starts[i]);
            old_exec(f.path, sql, name == 0 ? "p" : "key", &NO_BLOBS);
        }
        kit_open(&k, f.path);
        CHECK_UINT_EQ(limits_of(&k, "p").rate_used, 2);
        CHECK_UINT_EQ(start_one(&k, "p", "p").status, VOW_STATUS_WAITING);
        CHECK_UINT_EQ(start_one(&k, "key", "p").status, VOW_STATUS_WAITING);
        kit_close(&k);
        folder_close(&f);
    }
}

/* A receiver that has seen a fence of the older version refuses all below. */
TEST(sqlite_upgrade, fences_go_on_above_all_that_were_given)
{
    struct folder f;
    struct kit k;
    old_folder(&f, this_boot());
    old_record(f.path,
               &(struct old_record){.name = "pay", .epoch = OLD_BASE + 5});
    int64_t given = OLD_BASE + boot_us();
    for (int i = 0; i < 2; i++) {
        kit_open(&k, f.path);
        struct kit_answer a = kit_claim(&k, i == 0 ? "a" : "b", 1);
        CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
        CHECK(a.epoch > (uint64_t)given);
        given = (int64_t)a.epoch;
        kit_close(&k);
    }
    folder_close(&f);
}

TEST(sqlite_upgrade, after_a_reboot_doubts_limits_and_fences_are_there)
{
    struct folder f;
    struct kit k;
    old_folder(&f, "an-earlier-boot");
    old_record(f.path,
               &(struct old_record){.name = "pay", .epoch = OLD_BASE + 5});
    old_pool(f.path, "p", "7,3,60000000");
    kit_open(&k, f.path);
    struct kit_answer a = claim_once(&k, "pay", 1);
    CHECK_UINT_EQ(a.status, VOW_STATUS_DOUBT);
    CHECK_UINT_EQ(a.epoch, OLD_BASE + 5);
    CHECK_UINT_EQ(limits_of(&k, "p").limits.concurrent, 7);
    CHECK(kit_claim(&k, "a", 1).epoch > OLD_BASE + 5);
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_upgrade, a_folder_without_any_record_is_used)
{
    struct folder f;
    struct kit k;
    old_folder(&f, this_boot());
    kit_open(&k, f.path);
    CHECK_UINT_EQ(claim_once(&k, "new", 1).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(k.damages, 0);
    kit_close(&k);
    folder_close(&f);
}

/* The upgrade meets the damage. */
TEST(sqlite_upgrade, what_must_survive_is_taken_from_a_damaged_file)
{
    struct folder f;
    struct kit k;
    old_folder(&f, this_boot());
    old_pool(f.path, "p", "7,3,60000000");
    old_record(f.path,
               &(struct old_record){.name = "pay", .epoch = OLD_BASE + 5});
    old_record(f.path, &(struct old_record){.name = "paid",
                                            .state = OLD_DONE,
                                            .epoch = OLD_BASE + 6,
                                            .value = "receipt"});
    old_record(f.path, &(struct old_record){.name = "cache",
                                            .state = OLD_DONE,
                                            .shared = true,
                                            .epoch = OLD_BASE + 7,
                                            .value = "again"});
    kit_sql(f.path, "DELETE FROM meta");
    kit_open(&k, f.path);
    CHECK_UINT_EQ(k.damages, 1);
    struct kit_answer a = claim_once(&k, "pay", 1);
    CHECK_UINT_EQ(a.status, VOW_STATUS_DOUBT);
    CHECK_UINT_EQ(a.epoch, OLD_BASE + 5);
    a = claim_once(&k, "paid", 1);
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK(a.size == 7 && a.first == 'r');
    CHECK_UINT_EQ(kit_claim(&k, "cache", 1).status, VOW_STATUS_OWNED);
    CHECK_INT_EQ(claim_once(&k, "new", 1).code, VOW_EIO);
    CHECK_UINT_EQ(limits_of(&k, "p").limits.concurrent, 7);
    kit_close(&k);
    folder_close(&f);
}

/* A process of the older version: alive, with the file open, and the owner of
 * "a". */
static pid_t old_process(const char *folder, atomic_uint *stage)
{
    char path[400];
    pid_t pid = kit_child();
    if (pid != 0)
        return pid;
    snprintf(path, sizeof(path), "%s/live", folder);
    CHECK(mkdir(path, 0700) == 0);
    strcat(path, "/30313233343536373839616263646566");
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CHECK(fcntl(fd, F_SETLK, &l) == 0);
    CHECK(write(fd, "pid 1 started 2 host h\n", 23) == 23);
    sqlite3 *db = old_db(folder);
    CHECK_INT_EQ(sqlite3_exec(db, "SELECT * FROM meta", NULL, NULL, NULL),
                 SQLITE_OK);
    old_record(folder, &(struct old_record){
                           .name = "a", .shared = true, .epoch = OLD_BASE + 5});
    atomic_store(stage, 1);
    for (;;)
        kit_nap_ms(1000);
}

/* Together, or not at all. */
TEST(sqlite_upgrade, what_an_older_process_runs_is_not_begun_beside_it)
{
    struct folder f;
    struct kit k;
    char why[600] = "";
    atomic_uint *stage = kit_shared(sizeof(*stage));
    old_folder(&f, this_boot());
    pid_t pid = old_process(f.path, stage);
    kit_await(stage, 1);
    int code = kit_try_open(&k, f.path, 0, why);
    if (code != 0) {
        CHECK(why[0] != '\0');
    } else {
        struct kit_answer a = kit_claim(&k, "a", 1);
        CHECK(a.code != 0 || a.status == VOW_STATUS_WAITING);
        CHECK(a.code == 0 || kit_why(&k)[0] != '\0');
        kit_close(&k);
    }
    kit_kill(pid);
    kit_open(&k, f.path);
    CHECK_UINT_EQ(k.damages, 0);
    struct kit_answer a = kit_claim(&k, "a", 1);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK(a.epoch > OLD_BASE + 5);
    kit_close(&k);
    folder_close(&f);
}

/* For this process only, and as root only. */
static bool make_read_only(const char *folder)
{
    const unsigned long again = MS_BIND | MS_REMOUNT | MS_RDONLY;
    return unshare(CLONE_NEWNS) == 0 &&
           mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount(folder, folder, NULL, MS_BIND, NULL) == 0 &&
           mount(NULL, folder, NULL, again, NULL) == 0;
}

TEST(sqlite_upgrade, a_folder_that_is_read_only_is_refused_with_the_reason)
{
    struct folder f;
    struct kit k;
    char why[600] = "";
    folder_open(&f);
    kit_open(&k, f.path); /* makes all files of a folder */
    kit_close(&k);
    sqlite3 *db = old_db(f.path); /* the log stays */
    CHECK_INT_EQ(sqlite3_exec(db, "PRAGMA user_version=1", NULL, NULL, NULL),
                 SQLITE_OK);
    pid_t pid = kit_child();
    if (pid == 0) {
        if (!make_read_only(f.path))
            _exit(0);
        CHECK_INT_EQ(kit_try_open(&k, f.path, 0, why), VOW_ESTORE);
        CHECK(strstr(why, "made by an earlier vow, and is read only") != NULL);
        _exit(0);
    }
    kit_wait(pid);
    CHECK_INT_EQ(sqlite3_close(db), SQLITE_OK);
    folder_close(&f);
}

/* All come at once, as after a deployment. */
TEST(sqlite_upgrade, one_of_many_who_come_at_once_upgrades)
{
    enum { CROWD = 12 };
    struct folder f;
    pid_t pids[CROWD];
    atomic_uint *stage = kit_shared(2 * sizeof(*stage));
    old_folder(&f, this_boot());
    old_pool(f.path, "p", "7,3,60000000");
    old_record(f.path,
               &(struct old_record){.name = "pay", .epoch = OLD_BASE + 5});
    old_record(f.path, &(struct old_record){.name = "paid",
                                            .state = OLD_DONE,
                                            .epoch = OLD_BASE + 6,
                                            .value = "receipt"});
    for (int i = 0; i < CROWD; i++) {
        if ((pids[i] = kit_child()) != 0)
            continue;
        struct kit k;
        atomic_fetch_add(&stage[0], 1);
        kit_await(&stage[1], 1);
        kit_open(&k, f.path);
        CHECK_UINT_EQ(k.damages, 0);
        CHECK_UINT_EQ(claim_once(&k, "pay", 1).status, VOW_STATUS_DOUBT);
        CHECK_UINT_EQ(claim_once(&k, "paid", 1).size, 7);
        CHECK_UINT_EQ(limits_of(&k, "p").limits.concurrent, 7);
        kit_close(&k);
        _exit(0);
    }
    kit_await(&stage[0], CROWD);
    atomic_store(&stage[1], 1);
    for (int i = 0; i < CROWD; i++)
        kit_wait(pids[i]);
    folder_close(&f);
}
