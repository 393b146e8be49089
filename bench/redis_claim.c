/* SPDX-License-Identifier: MIT */
/* redis_claim.c - claims by the store's own step, without an authority: many at
 * once beside redis-benchmark, and one at a time beside a socket that blocks.
 *
 * Both sides call the same script with arguments of the same sizes, and every
 * claim is of a new name, which is made before the time is taken. The database
 * is emptied before each turn of many.
 *
 * And a claim with its commit in a database with few records and in one with
 * many, both of the same server.
 */
#include "redis.h"

enum {
    DEPTH = 64,
    CLAIMS = 12800, /* in a turn */
    MANY_TURNS = 5,
    ONES = 100, /* one at a time, in a turn */
    ONE_TURNS = 40,
    PAIRS = 8000, /* claims and commits among other records */
    PAIR_TURN = 250,
    VALUE = 100, /* bytes of a result */
    TTL_MS = 3600000,
    LEASE_MS = 10000
};

static const vow_token token = {"benchmark token"};

/* ---- ours ---------------------------------------------------------------- */

struct ours {
    vow_loop *loop;
    vow_store *store;
    vow_name names[CLAIMS];
    long next;     /* of these */
    long end;      /* no claims from here on */
    long made;     /* names, in all turns */
    long answers;  /* to come */
    double *times; /* of each; NULL: not wanted */
    double begin;  /* of the last */
};

static void claim_next(struct ours *o);

static void on_claimed(int code, const vow_record *r, size_t n, void *user)
{
    struct ours *o = user;
    MUST(code == 0 && n == 1 && r->status == VOW_STATUS_OWNED);
    o->answers--;
    if (o->times != NULL)
        *o->times++ = now_ns() - o->begin;
    if (o->next < o->end)
        claim_next(o);
}

static void claim_next(struct ours *o)
{
    vow_claim_request ask = {.name = o->names[o->next++],
                             .token = token,
                             .lease_ms = LEASE_MS,
                             .takeovers = 3,
                             .runner = "bench:1"};
    o->answers++;
    o->begin = now_ns();
    o->store->ops->claim(o->store, &ask, on_claimed, o);
}

/* So many in flight, until so many were claimed. */
static double claim_many(struct ours *o, long n, long depth)
{
    for (long i = 0; i < n; i++)
        o->names[i] = name_of_number("claim", o->made++);
    o->next = 0;
    o->end = n;
    double begin = now_ns();
    for (long i = 0; i < depth; i++)
        claim_next(o);
    MUST(vow_loop_run(o->loop) == 0);
    MUST(o->answers == 0 && o->next == o->end);
    return now_ns() - begin;
}

/* ---- theirs -------------------------------------------------------------- */

/* The words of a call; `tag` has 43 characters, as a name has. */
struct words {
    char keys[5][64];
    const char *all[20];
};

static void make_words(struct words *w, const char *sha, const char *tag)
{
    static const char *const rest[] = {"", ":w", ":g", ":c", ":e"};
    static const char all_names[] =
        "-------------------------------------------";
    for (size_t i = 0; i < COUNT(rest); i++)
        (void)snprintf(w->keys[i], sizeof(w->keys[i]), "vow:p:{%s}%s",
                       i < 4 ? tag : all_names, rest[i]);
    const char *all[] = {"EVALSHA",
                         sha,
                         "5",
                         w->keys[0],
                         w->keys[1],
                         w->keys[2],
                         w->keys[3],
                         w->keys[4],
                         "benchmark token.",
                         "vow:i:0123456789abcdef0123456789abcdef",
                         "10000",
                         "3",
                         "0",
                         "0",
                         "0",
                         "",
                         "bench:1",
                         "0",
                         tag,
                         NULL};
    memcpy(w->all, all, sizeof(all));
}

/* Calls per second, as redis-benchmark says. */
static double benchmark_once(const char *sha)
{
    struct words w;
    char command[2048], line[1024], *at;
    make_words(&w, sha, "0123456789012345678901234567890__rand_int__");
    size_t n = (size_t)snprintf(
        command, sizeof(command),
        "redis-benchmark -s %s -c 1 -P %d -n %d -r 1000000000 --csv",
        server_socket(), DEPTH, CLAIMS);
    for (size_t i = 0; w.all[i] != NULL; i++) {
        n += (size_t)snprintf(command + n, sizeof(command) - n, " '%s'",
                              w.all[i]);
        MUST(n < sizeof(command));
    }
    FILE *f = popen(command, "r");
    MUST(f != NULL);
    double rate = 0;
    while (fgets(line, sizeof(line), f) != NULL)
        if ((at = strstr(line, "\",\"")) != NULL)
            rate = strtod(at + 3, NULL); /* the last line has it */
    MUST(pclose(f) == 0 && rate > 0);
    return rate;
}

static double evalsha_once(struct bare *b, const char *sha, long number)
{
    struct words w;
    char tag[64];
    (void)snprintf(tag, sizeof(tag), "%043ld", number);
    make_words(&w, sha, tag);
    double begin = now_ns();
    MUST(bare_ask(b, w.all) != NULL);
    return now_ns() - begin;
}

/* ---- in turns ------------------------------------------------------------ */

static struct ours *open_ours(void)
{
    static struct ours o;
    o.loop = open_loop();
    o.store = open_store(o.loop);
    claim_many(&o, DEPTH, 1); /* connected, warm */
    return &o;
}

static void close_ours(struct ours *o)
{
    close_store(o->loop, o->store);
    MUST(vow_loop_close(o->loop) == 0);
}

void bench_claim(void)
{
    char sha[41];
    double ours = 0, theirs = 0; /* seconds */
    struct bare *b = bare_open(server_socket());
    struct ours *o = open_ours();
    bare_load_claim(b, sha);
    for (int i = 0; i < MANY_TURNS; i++) {
        (void)ASK(b, "FLUSHALL");
        ours += claim_many(o, CLAIMS, DEPTH) / 1e9;
        (void)ASK(b, "FLUSHALL");
        theirs += CLAIMS / benchmark_once(sha);
    }
    row("claim", "vow", CLAIMS * MANY_TURNS / ours, "names/s");
    row("claim", "redis-benchmark", CLAIMS * MANY_TURNS / theirs, "names/s");
    close_ours(o);
    bare_close(b);
}

void bench_claim_one(void)
{
    static double ours[ONES * ONE_TURNS], theirs[ONES * ONE_TURNS];
    char sha[41];
    long number = 0;
    struct bare *b = bare_open(server_socket());
    struct ours *o = open_ours();
    bare_load_claim(b, sha);
    o->times = ours;
    for (int i = 0; i < ONE_TURNS; i++) {
        claim_many(o, ONES, 1);
        for (int k = 0; k < ONES; k++, number++)
            theirs[number] = evalsha_once(b, sha, number);
    }
    MUST(o->times == ours + COUNT(ours));
    row("claim-one", "vow", percentile(ours, COUNT(ours), 50) / 1e3, "us");
    row("claim-one", "c-redis", percentile(theirs, COUNT(theirs), 50) / 1e3,
        "us");
    close_ours(o);
    bare_close(b);
}

/* ---- many records -------------------------------------------------------- */

struct pairs {
    const char *row;
    int db;
    long records;
    vow_loop *loop;
    vow_store *store;
    vow_bytes *value;
    uint64_t epoch; /* of the claim */
    bool done;
    double spent;
};

static void on_pair_step(int code, const vow_record *r, size_t n, void *user)
{
    struct pairs *p = user;
    MUST(code == 0 && n == 1 && r->status == VOW_STATUS_OWNED);
    p->epoch = r->epoch;
    p->done = true;
}

static void await_pair_step(struct pairs *p)
{
    MUST(vow_loop_run(p->loop) == 0);
    MUST(p->done);
    p->done = false;
}

static void claim_and_commit(struct pairs *p, const vow_name *name)
{
    vow_claim_request claim = {.name = *name,
                               .token = token,
                               .lease_ms = LEASE_MS,
                               .takeovers = 3,
                               .runner = "bench:1"};
    p->store->ops->claim(p->store, &claim, on_pair_step, p);
    await_pair_step(p);
    vow_commit_request commit = {.hold = {*name, token, p->epoch},
                                 .outcome = VOW_OUTCOME_DONE,
                                 .value = p->value,
                                 .ttl_ms = TTL_MS};
    p->store->ops->commit(p->store, &commit, on_pair_step, p);
    await_pair_step(p);
}

/* Opens the store in a database of the server, settles one name there, and
 * copies the record under other names, past the store. */
static void open_pairs(struct pairs *p, struct bare *b)
{
    static const char copy[] =
        "for i = 1, ARGV[1] do"
        " redis.call('COPY', KEYS[1], string.format('vow:p:{%043d}', i))"
        " end";
    char url[300], db[16], count[16], key[80], text[VOW_NAME_TEXT];
    vow_name name = name_of_number("first", 0);
    (void)snprintf(db, sizeof(db), "%d", p->db);
    (void)snprintf(count, sizeof(count), "%ld", p->records);
    (void)snprintf(url, sizeof(url), "unix:%s?db=%s", server_socket(), db);
    p->loop = open_loop();
    VOW_AUTO(vow_future) f = vow_store_open(p->loop, url);
    MUST(vow_loop_run_until(p->loop, f) == 0);
    p->store = vow_as_ptr(vow_get(f));
    MUST(vow_bytes_new(p->loop, NULL, VALUE, &p->value) == 0);
    claim_and_commit(p, &name);
    (void)vow_name_text(&name, text);
    (void)snprintf(key, sizeof(key), "vow:p:{%s}", text);
    (void)ASK(b, "SELECT", db);
    (void)ASK(b, "EVAL", copy, "1", key, count);
    (void)snprintf(count, sizeof(count), "db%d:keys=", p->db);
    MUST(number_behind(ASK(b, "INFO", "keyspace"), count) > (double)p->records);
}

static void close_pairs(struct pairs *p)
{
    vow_bytes_unref(p->value);
    close_store(p->loop, p->store);
    MUST(vow_loop_close(p->loop) == 0);
}

void bench_records(void)
{
    struct pairs all[] = {
        {.row = "claim-at-1k", .db = 1, .records = 1000},
        {.row = "claim-at-1m", .db = 2, .records = 1000000},
    };
    struct bare *b = bare_open(server_socket());
    for (size_t k = 0; k < COUNT(all); k++)
        open_pairs(&all[k], b);
    for (long first = 0; first < PAIRS; first += PAIR_TURN)
        for (size_t k = 0; k < COUNT(all); k++) {
            double begin = now_ns();
            for (long i = 0; i < PAIR_TURN; i++) {
                vow_name name = name_of_number("pair", first + i);
                claim_and_commit(&all[k], &name);
            }
            all[k].spent += now_ns() - begin;
        }
    for (size_t k = 0; k < COUNT(all); k++) {
        row(all[k].row, "vow", all[k].spent / PAIRS / 1e3, "us");
        close_pairs(&all[k]);
    }
    bare_close(b);
}
