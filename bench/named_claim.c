/* SPDX-License-Identifier: MIT */
/* named_claim.c - the store in a folder, beside bare SQLite.
 *
 * The store is used by its own steps, without an authority. Each name is
 * claimed and then settled with VALUE bytes that are kept: two transactions on
 * either side, in files of the same folder.
 */
#include "named.h"

#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PAIRS = 8000, /* claims and commits */
    TURN = 250,   /* of these one side after the other */
    VALUE = 100,  /* bytes of a result */
    TTL_MS = 3600000,
    LEASE_MS = 10000,
    PROCESSES = 50,
    FAIR_S = 5
};

static const vow_token token = {"benchmark token"};

/* One side: claims names and settles them, each in a step of its own. */
struct side {
    const char *peer;
    void *(*open)(const char *folder);
    void (*claim)(void *at, const vow_name *name);
    void (*commit)(void *at, const vow_name *name);
    void (*close)(void *at);
};

/* ---- ours ---------------------------------------------------------------- */

struct ours {
    vow_loop *loop;
    vow_store *store;
    vow_bytes *value;
    uint64_t epoch;
    bool done;
};

static vow_bytes *new_value(vow_loop *loop)
{
    vow_bytes *value = NULL;
    MUST(vow_bytes_new(loop, NULL, VALUE, &value) == 0);
    return value;
}

static void *ours_open(const char *folder)
{
    struct ours *o = calloc(1, sizeof(*o));
    char url[300];
    MUST(o != NULL);
    (void)snprintf(url, sizeof(url), "file:%s/store", folder);
    o->loop = open_loop();
    VOW_AUTO(vow_future) f = vow_store_open(o->loop, url);
    MUST(vow_loop_run_until(o->loop, f) == 0);
    o->store = vow_as_ptr(vow_get(f));
    o->value = new_value(o->loop);
    return o;
}

/* This store answers before the call returns. */
static void on_answer(int code, const vow_record *r, size_t n, void *user)
{
    struct ours *o = user;
    MUST(code == 0);
    MUST(n == 1 && r->status == VOW_STATUS_OWNED);
    o->epoch = r->epoch;
    o->done = true;
}

static void ours_claim(void *at, const vow_name *name)
{
    struct ours *o = at;
    vow_claim_request ask = {.name = *name,
                             .token = token,
                             .lease_ms = LEASE_MS,
                             .takeovers = 3,
                             .runner = "bench"};
    o->done = false;
    o->store->ops->claim(o->store, &ask, on_answer, o);
    MUST(o->done);
}

static void ours_commit(void *at, const vow_name *name)
{
    struct ours *o = at;
    vow_commit_request ask = {.hold = {*name, token, o->epoch},
                              .outcome = VOW_OUTCOME_DONE,
                              .value = o->value,
                              .ttl_ms = TTL_MS};
    o->done = false;
    o->store->ops->commit(o->store, &ask, on_answer, o);
    MUST(o->done);
}

static void ours_close(void *at)
{
    struct ours *o = at;
    VOW_AUTO(vow_future) f = o->store->ops->close(o->store);
    MUST(vow_loop_run_until(o->loop, f) == 0);
    vow_bytes_unref(o->value);
    MUST(vow_loop_close(o->loop) == 0);
    free(o);
}

/* ---- bare SQLite --------------------------------------------------------- */

struct theirs {
    vow_loop *loop; /* of the value only */
    vow_bytes *value;
    struct bare *bare;
};

static void *theirs_open(const char *folder)
{
    struct theirs *t = calloc(1, sizeof(*t));
    MUST(t != NULL);
    t->loop = open_loop();
    t->value = new_value(t->loop);
    t->bare = bare_open(folder);
    return t;
}

static void theirs_claim(void *at, const vow_name *name)
{
    struct theirs *t = at;
    bare_claim(t->bare, name, &token);
}

static void theirs_commit(void *at, const vow_name *name)
{
    struct theirs *t = at;
    bare_commit(t->bare, name, &token, t->value);
}

static void theirs_close(void *at)
{
    struct theirs *t = at;
    bare_close(t->bare);
    vow_bytes_unref(t->value);
    MUST(vow_loop_close(t->loop) == 0);
    free(t);
}

static const struct side sides[] = {
    {"vow", ours_open, ours_claim, ours_commit, ours_close},
    {"c-sqlite", theirs_open, theirs_claim, theirs_commit, theirs_close},
};

/* ---- one process --------------------------------------------------------- */

static vow_name name_of_number(long process, long number)
{
    char text[64];
    (void)snprintf(text, sizeof(text), "%ld:%ld", process, number);
    return vow_name_of(text);
}

/* Each side claims and settles the same names, in its turn. */
static void take_turns(void *const *at, const vow_name *names, double *spent)
{
    for (size_t s = 0; s < COUNT(sides); s++) {
        double begin = now_ns();
        for (long i = 0; i < TURN; i++) {
            sides[s].claim(at[s], &names[i]);
            sides[s].commit(at[s], &names[i]);
        }
        spent[s] += now_ns() - begin;
    }
}

void bench_claim(void)
{
    const char *folder = new_folder();
    double spent[COUNT(sides)] = {0};
    void *at[COUNT(sides)];
    for (size_t s = 0; s < COUNT(sides); s++)
        at[s] = sides[s].open(folder);
    for (long first = 0; first < PAIRS; first += TURN) {
        vow_name names[TURN];
        for (long i = 0; i < TURN; i++)
            names[i] = name_of_number(0, first + i);
        take_turns(at, names, spent);
    }
    for (size_t s = 0; s < COUNT(sides); s++) {
        row("claim", sides[s].peer, PAIRS / (spent[s] / 1e9), "names/s");
        sides[s].close(at[s]);
    }
}

/* ---- many records -------------------------------------------------------- */

/* Copies the only record of a store under random names, past the store. */
static void fill_store(const char *folder, long records)
{
    static const char columns_of[] =
        "SELECT group_concat(CASE name WHEN 'h' THEN 'randomblob(32)'"
        " ELSE name END) FROM pragma_table_info('rec')";
    char text[512];
    sqlite3 *db;
    sqlite3_stmt *q;
    (void)snprintf(text, sizeof(text), "%s/store/vow.db", folder);
    MUST(sqlite3_open(text, &db) == SQLITE_OK);
    MUST(sqlite3_prepare_v2(db, columns_of, -1, &q, NULL) == SQLITE_OK);
    MUST(sqlite3_step(q) == SQLITE_ROW);
    (void)snprintf(text, sizeof(text),
                   "WITH RECURSIVE n(i) AS"
                   " (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT %ld)"
                   " INSERT INTO rec SELECT %s FROM rec,n"
                   " WHERE h=(SELECT h FROM rec LIMIT 1) ORDER BY 1",
                   records, (const char *)sqlite3_column_text(q, 0));
    MUST(sqlite3_finalize(q) == SQLITE_OK);
    MUST(sqlite3_exec(db, text, NULL, NULL, NULL) == SQLITE_OK);
    MUST(sqlite3_changes64(db) == records);
    MUST(sqlite3_close(db) == SQLITE_OK);
}

/* Two stores in turns, one with few records and one with many. */
void bench_records(void)
{
    static const struct {
        const char *row;
        long records;
    } stores[] = {{"claim-at-1k", 1000}, {"claim-at-1m", 1000000}};
    const char *folder = new_folder();
    double spent[COUNT(stores)] = {0};
    void *at[COUNT(stores)];
    for (size_t s = 0; s < COUNT(stores); s++) {
        char below[300];
        vow_name name = name_of_number(-1, 0);
        (void)snprintf(below, sizeof(below), "%s/%zu", folder, s);
        MUST(mkdir(below, 0700) == 0);
        at[s] = ours_open(below);
        ours_claim(at[s], &name);
        ours_commit(at[s], &name);
        ours_close(at[s]);
        fill_store(below, stores[s].records);
        at[s] = ours_open(below);
    }
    for (long first = 0; first < PAIRS; first += TURN)
        for (size_t s = 0; s < COUNT(stores); s++) {
            double begin = now_ns();
            for (long i = 0; i < TURN; i++) {
                vow_name name = name_of_number(0, first + i);
                ours_claim(at[s], &name);
                ours_commit(at[s], &name);
            }
            spent[s] += now_ns() - begin;
        }
    for (size_t s = 0; s < COUNT(stores); s++) {
        row(stores[s].row, "vow", spent[s] / PAIRS / 1e3, "us");
        ours_close(at[s]);
    }
}

/* ---- fifty --------------------------------------------------------------- */

struct fair {
    const char *folder;
    const struct side *side;
    atomic_int ready;
    atomic_int next; /* the number of who comes next */
    atomic_bool go;
    struct {
        long served;
        double worst_ns;
    } of[PROCESSES];
};

static void wait_longer(double *worst_ns, double since)
{
    double spent = now_ns() - since;
    if (spent > *worst_ns)
        *worst_ns = spent;
}

static void be_one_of_fifty(void *fair)
{
    struct fair *f = fair;
    int me = atomic_fetch_add(&f->next, 1);
    long served = 0;
    double worst = 0;
    void *at = f->side->open(f->folder);
    atomic_fetch_add(&f->ready, 1);
    while (!atomic_load(&f->go))
        nap_us(1000);
    double end = now_ns() + FAIR_S * 1e9;
    while (now_ns() < end) {
        vow_name name = name_of_number(me, served++);
        double since = now_ns();
        f->side->claim(at, &name);
        wait_longer(&worst, since);
        since = now_ns();
        f->side->commit(at, &name);
        wait_longer(&worst, since);
    }
    f->of[me].served = served;
    f->of[me].worst_ns = worst;
    f->side->close(at);
}

static void report_fair(const struct fair *f)
{
    long least = f->of[0].served, most = 0, all = 0;
    double worst = 0;
    for (int i = 0; i < PROCESSES; i++) {
        long n = f->of[i].served;
        least = n < least ? n : least;
        most = n > most ? n : most;
        all += n;
        worst = f->of[i].worst_ns > worst ? f->of[i].worst_ns : worst;
    }
    const char *peer = f->side->peer;
    row("fair-least", peer, (double)least / (double)most, "of most");
    row("fair-wait", peer, worst / 1e6, "ms");
    row("fair-rate", peer, (double)all / FAIR_S, "names/s");
}

void bench_fair(void)
{
    const char *folder = new_folder();
    for (size_t s = 0; s < COUNT(sides); s++) {
        struct fair *f = new_shared(sizeof(*f));
        pid_t pids[PROCESSES];
        f->folder = folder;
        f->side = &sides[s];
        for (int i = 0; i < PROCESSES; i++)
            pids[i] = start_child(be_one_of_fifty, f);
        while (atomic_load(&f->ready) < PROCESSES)
            nap_us(1000);
        atomic_store(&f->go, true);
        for (int i = 0; i < PROCESSES; i++)
            end_child(pids[i]);
        report_fair(f);
    }
}
