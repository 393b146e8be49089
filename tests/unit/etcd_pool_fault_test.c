/* SPDX-License-Identifier: MIT */
/* etcd_pool_fault_test.c - places when memory or answers are missing: by a
 * gateway that says what a test wants. */
#include "etcd_fake.h"
#include "store/etcd/etcd_pools.h"

enum { LEASE_MS = 5000 };

/* What the pool has, and what the next transaction answers with: a letter for
 * each response. p and d: written or deleted; n: an inner transaction; t: the
 * tree of the pool, a: of the law; l: limits; e: nothing. */
static struct {
    const char *shape;
    bool fails;      /* its compares do not hold */
    unsigned seats;  /* tokens 1 to this one */
    unsigned rate;   /* 0: one at once */
    unsigned unsaid; /* so many answers of transactions are lost, */
    unsigned silent; /* or do not come */
    unsigned txns;
    unsigned deletes; /* transactions that delete something */
    long long lease;
} server;

struct told {
    unsigned n;
    int code;
    vow_pool_permit at;
};
static unsigned places;

static vow_name pool_name(void)
{
    return vow_name_of("p");
}

static vow_token token_of(unsigned number)
{
    return (vow_token){.bytes = {(unsigned char)number}};
}

/* ---- the gateway --------------------------------------------------------- */

static void say(struct fake_etcd *f, const char *text)
{
    size_t n = strlen(f->said);
    snprintf(f->said + n, sizeof(f->said) - n, "%s", text);
}

static void say_base64(struct fake_etcd *f, const char *text)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i += 3) {
        char four[5] = "====";
        unsigned bits = 0;
        for (size_t k = 0; k < 3; k++)
            bits = bits << 8 | (i + k < n ? (unsigned char)text[i + k] : 0);
        for (size_t k = 0; k < 4 && i + k <= n; k++)
            four[k] = digits[bits >> (18 - 6 * k) & 63];
        say(f, four);
    }
}

static void say_pair(struct fake_etcd *f, const char *key, unsigned revision,
                     const char *value)
{
    char text[256], numbers[128];
    snprintf(text, sizeof(text), "vow/%s", key);
    say(f, "{\"key\":\"");
    say_base64(f, text);
    say(f, "\",\"value\":\"");
    say_base64(f, value);
    snprintf(numbers, sizeof(numbers),
             "\",\"create_revision\":\"%u\",\"mod_revision\":\"%u\","
             "\"lease\":\"%lld\"}",
             revision, revision, server.lease);
    say(f, numbers);
}

static void say_seats(struct fake_etcd *f)
{
    vow_name pool = pool_name();
    struct vow__hall_name name = {pool, pool};
    for (unsigned i = 1; i <= server.seats; i++) {
        vow_token token = token_of(i);
        say(f, i > 1 ? "," : "");
        say_pair(f, vow__seat_key(&name, &token).text, 10 + i,
                 "weight 1\nlease 5000\n");
    }
}

static void say_limits(struct fake_etcd *f)
{
    vow_name pool = pool_name();
    char value[64];
    snprintf(value, sizeof(value), "concurrent %u\nrate %u\nwindow 1000000\n",
             server.rate == 0, server.rate);
    say_pair(f, vow__limits_key(&pool).text, 5, value);
}

static void say_response(struct fake_etcd *f, char letter)
{
    if (letter == 'p')
        say(f, "{\"response_put\":{}}");
    else if (letter == 'd')
        say(f, "{\"response_delete_range\":{}}");
    else if (letter == 'n')
        say(f, "{\"response_txn\":{\"succeeded\":true}}");
    else
        say(f, "{\"response_range\":{\"kvs\":[");
    if (letter == 't' || letter == 'a')
        say_seats(f);
    if (letter == 'a' && server.seats > 0)
        say(f, ",");
    if (letter == 'l' || letter == 'a')
        say_limits(f);
    if (strchr("tale", letter) != NULL)
        say(f, "]}}");
}

static const char *say_txn(struct fake_etcd *f)
{
    server.txns++;
    server.deletes += strstr(f->body, "request_delete_range") != NULL;
    say(f, "{\"header\":{\"revision\":\"20\"}");
    say(f, server.fails ? "" : ",\"succeeded\":true");
    say(f, ",\"responses\":[");
    for (const char *s = server.shape; *s != 0; s++) {
        say(f, s > server.shape ? "," : "");
        say_response(f, *s);
    }
    say(f, "]}");
    if (server.silent > 0) {
        server.silent--;
        return FAKE_SILENCE;
    }
    if (server.unsaid == 0)
        return f->said;
    server.unsaid--;
    return FAKE_HANG_UP;
}

static const char *answer(struct fake_etcd *f, const char *path,
                          const char *body)
{
    f->said[0] = 0;
    if (strcmp(path, "kv/txn") == 0)
        return say_txn(f);
    if (strcmp(path, "watch") == 0)
        return "{\"result\":{\"header\":{\"revision\":\"20\"},\"created\":true}"
               "}";
    const char *id = strstr(body, "\"ID\":\"");
    if (id == NULL)
        return "{\"header\":{\"revision\":\"20\"}}";
    bool keeps = strcmp(path, "lease/keepalive") == 0;
    long long lease = strtoll(id + 6, NULL, 10);
    if (server.lease == 0) /* that of places comes before that of tolls */
        server.lease = lease;
    snprintf(f->said, sizeof(f->said), "%s{\"ID\":\"%lld\",\"TTL\":\"6\"}%s",
             keeps ? "{\"result\":" : "", lease, keeps ? "}" : "");
    return f->said;
}

/* ---- asking -------------------------------------------------------------- */

static void on_permit(const vow_token *token, void *user)
{
    (void)token;
    (void)user;
    places++;
}

static void begin(struct fake_etcd *f, struct world *w)
{
    memset(&server, 0, sizeof(server));
    server.shape = "";
    places = 0;
    if (w == NULL)
        fake_etcd_open(f, answer);
    else
        fake_etcd_begin(f, w, answer);
    if (f->store != NULL)
        f->store->ops->listen(
            f->store, &(const vow_store_events){.on_permit = on_permit});
}

static void on_places(int code, const vow_pool_permit *at, size_t n, void *user)
{
    struct told *t = user;
    t->n++;
    t->code = code;
    if (n > 0)
        t->at = at[0];
}

static void on_pools(int code, const vow_pool_info *infos, size_t n, void *user)
{
    struct told *t = user;
    (void)infos;
    t->n++;
    t->code = code;
    CHECK(code < 0 || n == 1);
}

static int wait_for(struct fake_etcd *f, const struct told *t)
{
    FAKE_ETCD_UNTIL(f, t->n > 0);
    CHECK_UINT_EQ(t->n, 1);
    return t->code;
}

static int acquire(struct fake_etcd *f, unsigned number, const char *shape,
                   vow_pool_permit *ret_place)
{
    struct told t = {.n = 0};
    const vow_permit_request ask = {.pool = pool_name(),
                                    .limits_of = pool_name(),
                                    .token = token_of(number),
                                    .weight = 1,
                                    .lease_ms = LEASE_MS,
                                    .label = "p",
                                    .runner = "r"};
    server.shape = shape;
    f->store->ops->acquire(f->store, &ask, on_places, &t);
    int code = wait_for(f, &t);
    *ret_place = t.at;
    return code;
}

static vow_permit_hold hold_of(unsigned number)
{
    return (vow_permit_hold){pool_name(), pool_name(), token_of(number), false};
}

static int release(struct fake_etcd *f, unsigned number, const char *shape)
{
    struct told t = {.n = 0};
    vow_permit_hold hold = hold_of(number);
    server.shape = shape;
    f->store->ops->release(f->store, &hold, on_places, &t);
    return wait_for(f, &t);
}

static int renew(struct fake_etcd *f, unsigned number, uint64_t lease_ms)
{
    struct told t = {.n = 0};
    vow_permit_hold hold = hold_of(number);
    server.shape = "tle";
    f->store->ops->renew(f->store, &hold, 1, lease_ms, on_places, &t);
    return wait_for(f, &t);
}

static int limit(struct fake_etcd *f, const vow_pool_limits *limits,
                 const char *shape)
{
    struct told t = {.n = 0};
    vow_name pool = pool_name();
    server.shape = shape;
    f->store->ops->limit(f->store, &pool, limits, "p", on_pools, &t);
    return wait_for(f, &t);
}

/* What the watch tells: a seat, or that it is gone. */
static void tell(struct fake_etcd *f, unsigned number, unsigned revision,
                 bool gone)
{
    static char line[4096];
    vow_name pool = pool_name();
    struct vow__hall_name name = {pool, pool};
    vow_token token = token_of(number);
    f->said[0] = 0;
    say_pair(f, vow__seat_key(&name, &token).text, revision,
             gone ? "" : "weight 1\nlease 5000\n");
    snprintf(line, sizeof(line),
             "{\"result\":{\"header\":{\"revision\":\"%u\"},\"events\":[{%s"
             "\"kv\":%.3000s}]}}",
             revision, gone ? "\"type\":\"DELETE\"," : "", f->said);
    fake_line(f, line);
}

/* ---- without memory ------------------------------------------------------ */

/* VOW_EUNSURE: what was written before cannot be taken back. VOW_ESTORE: an
 * answer could not be read. */
static void check(const struct world *w, int code)
{
    CHECK(code == 0 || fault_explains(w, code) ||
          ((code == VOW_EUNSURE || code == VOW_ESTORE) && fault_fired(w)));
}

FAULT_SWEEP(etcd_pool_fault, asking_and_giving_back_survive_every_fault,
            FAULT_ALLOC)
{
    static struct fake_etcd f;
    vow_pool_permit p;
    begin(&f, w);
    if (f.store != NULL) {
        server.seats = 1;
        check(w, acquire(&f, 1, "pntle", &p));
        check(w, renew(&f, 1, LEASE_MS));
        check(w, release(&f, 1, "ld"));
    }
    fake_etcd_end(&f);
}

FAULT_SWEEP(etcd_pool_fault, queueing_survives_every_fault, FAULT_ALLOC)
{
    static struct fake_etcd f;
    vow_pool_permit p;
    begin(&f, w);
    if (f.store != NULL) {
        server.seats = 2;
        check(w, acquire(&f, 2, "pntle", &p));
        fake_etcd_settle(&f);
        if (fake_stream(&f) != NULL) {
            tell(&f, 3, 21, false);
            tell(&f, 1, 22, true);
            fake_etcd_settle(&f);
        }
        CHECK(places > 0 || fault_fired(w));
        check(w, renew(&f, 2, LEASE_MS));
        check(w, release(&f, 2, "tled"));
    }
    fake_etcd_end(&f);
}

FAULT_SWEEP(etcd_pool_fault, a_rate_survives_every_fault, FAULT_ALLOC)
{
    static struct fake_etcd f;
    vow_pool_permit p;
    begin(&f, w);
    if (f.store != NULL) {
        server.rate = 2;
        server.seats = 1;
        check(w, acquire(&f, 1, "pntle", &p));
    }
    fake_etcd_end(&f);
}

FAULT_SWEEP(etcd_pool_fault, limits_survive_every_fault, FAULT_ALLOC)
{
    static struct fake_etcd f;
    begin(&f, w);
    if (f.store != NULL) {
        server.seats = 2;
        check(w, limit(&f, NULL, "tle"));
        check(w, limit(&f, &(const vow_pool_limits){.concurrent = 2}, "atle"));
    }
    fake_etcd_end(&f);
}

FAULT_SWEEP(etcd_pool_fault, lists_survive_every_fault, FAULT_ALLOC)
{
    static struct fake_etcd f;
    struct told t = {.n = 0};
    begin(&f, w);
    if (f.store != NULL) {
        server.seats = 2;
        server.shape = "a";
        f.store->ops->pools(f.store, on_pools, &t);
        check(w, wait_for(&f, &t));
    }
    fake_etcd_end(&f);
}

/* ---- without answers ----------------------------------------------------- */

enum { ALL = 1000 };

TEST(etcd_pool_fault, an_ask_without_an_answer_is_repeated)
{
    static struct fake_etcd f;
    vow_pool_permit p;
    begin(&f, NULL);
    server.seats = 1;
    server.unsaid = 2;
    CHECK_INT_EQ(acquire(&f, 1, "pntle", &p), 0);
    CHECK_UINT_EQ(p.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(server.txns, 3);
    fake_etcd_close(&f);
}

TEST(etcd_pool_fault, an_ask_without_any_answer_is_unsure_and_its_repeat_tells)
{
    static struct fake_etcd f;
    vow_pool_permit p;
    begin(&f, NULL);
    server.seats = 1;
    server.unsaid = ALL;
    CHECK_INT_EQ(acquire(&f, 1, "pntle", &p), VOW_EUNSURE);
    server.unsaid = 0;
    server.fails = true; /* its seat is there */
    CHECK_INT_EQ(acquire(&f, 1, "ntle", &p), 0);
    CHECK_UINT_EQ(p.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(p.fence, 11);
    fake_etcd_close(&f);
}

TEST(etcd_pool_fault, what_was_asked_without_an_answer_ends_with_its_lease)
{
    static struct fake_etcd f;
    vow_pool_permit p;
    begin(&f, NULL);
    server.unsaid = ALL;
    CHECK_INT_EQ(acquire(&f, 1, "pntle", &p), VOW_EUNSURE);
    server.unsaid = 0;
    unsigned before = server.txns;
    server.shape = "d";
    fake_etcd_pass(&f, LEASE_MS - 10);
    CHECK_UINT_EQ(server.txns, before);
    server.unsaid = 1; /* and again, until it is gone */
    fake_etcd_pass(&f, 20);
    CHECK_UINT_EQ(server.txns, before + 1);
    CHECK(strstr(f.body, "request_delete_range") != NULL);
    fake_etcd_pass(&f, 1100);
    CHECK_UINT_EQ(server.txns, before + 2);
    fake_etcd_pass(&f, 5000);
    CHECK_UINT_EQ(server.txns, before + 2);
    fake_etcd_close(&f);
}

/* While nothing is asked. */
static void leap(struct fake_etcd *f, unsigned seconds)
{
    for (unsigned i = 0; i < seconds; i++) {
        world_advance_ms(f->w, 970);
        fake_etcd_pass(f, 30);
    }
}

TEST(etcd_pool_fault, what_comes_behind_its_release_is_ended_for_a_minute)
{
    static struct fake_etcd f;
    vow_pool_permit p;
    begin(&f, NULL);
    server.seats = 1;
    server.unsaid = 1;
    CHECK_INT_EQ(acquire(&f, 1, "pntle", &p), 0);
    CHECK_INT_EQ(release(&f, 1, "ld"), 0);
    unsigned before = server.txns;
    server.shape = "d";
    leap(&f, 2);
    CHECK(server.txns > before && server.txns < before + 3);
    CHECK(strstr(f.body, "request_delete_range") != NULL);
    leap(&f, 70);
    CHECK(server.txns > before + 4 && server.txns < before + 10);
    before = server.txns;
    leap(&f, 100);
    CHECK_UINT_EQ(server.txns, before);
    fake_etcd_close(&f);
}

TEST(etcd_pool_fault, what_is_asked_for_again_is_not_ended)
{
    static struct fake_etcd f;
    vow_pool_permit p;
    begin(&f, NULL);
    server.seats = 1;
    server.unsaid = ALL;
    CHECK_INT_EQ(acquire(&f, 1, "pntle", &p), VOW_EUNSURE);
    server.unsaid = 0;
    CHECK_INT_EQ(release(&f, 1, "tled"), 0);
    CHECK_INT_EQ(acquire(&f, 1, "pntle", &p), 0);
    CHECK_UINT_EQ(p.status, VOW_STATUS_OWNED);
    for (int i = 0; i < 20; i++) {
        unsigned before = server.txns;
        leap(&f, LEASE_MS / 1000 - 1);
        CHECK_UINT_EQ(server.txns, before);
        CHECK_INT_EQ(renew(&f, 1, LEASE_MS), 0);
    }
    CHECK_INT_EQ(release(&f, 1, "ld"), 0);
    unsigned before = server.txns;
    leap(&f, 100); /* it is long ago */
    CHECK_UINT_EQ(server.txns, before);
    fake_etcd_close(&f);
}

TEST(etcd_pool_fault, a_place_that_could_not_be_given_back_is_still_ours)
{
    static struct fake_etcd f;
    vow_pool_permit p;
    begin(&f, NULL);
    server.seats = 1;
    CHECK_INT_EQ(acquire(&f, 1, "pntle", &p), 0);
    server.unsaid = ALL;
    CHECK_INT_EQ(release(&f, 1, "ld"), VOW_EUNSURE);
    server.unsaid = 0;
    CHECK_INT_EQ(renew(&f, 1, LEASE_MS), 0);
    CHECK_INT_EQ(release(&f, 1, "ld"), 0);
    fake_etcd_close(&f);
}

TEST(etcd_pool_fault, what_was_given_back_without_an_answer_was_ours)
{
    static struct fake_etcd f;
    vow_pool_permit p;
    struct told t = {.n = 0};
    const vow_permit_hold hold = {pool_name(), pool_name(), token_of(1), false};
    begin(&f, NULL);
    server.seats = 1;
    CHECK_INT_EQ(acquire(&f, 1, "pntle", &p), 0);
    server.unsaid = 1;
    server.seats = 0;
    server.shape = "tled";
    f.store->ops->release(f.store, &hold, on_places, &t);
    CHECK_INT_EQ(wait_for(&f, &t), 0);
    CHECK_UINT_EQ(t.at.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(t.at.fence, p.fence);
    fake_etcd_close(&f);
}

TEST(etcd_pool_fault, a_mark_without_an_answer_is_unsure)
{
    static struct fake_etcd f;
    vow_pool_permit p;
    begin(&f, NULL);
    server.rate = 2;
    server.seats = 1;
    struct told t = {.n = 0};
    const vow_permit_request ask = {.pool = pool_name(),
                                    .limits_of = pool_name(),
                                    .token = token_of(1),
                                    .weight = 1,
                                    .lease_ms = LEASE_MS};
    server.shape = "pntle";
    f.store->ops->acquire(f.store, &ask, on_places, &t);
    FAKE_ETCD_UNTIL(&f, server.txns == 1);
    server.unsaid = ALL;
    CHECK_INT_EQ(wait_for(&f, &t), VOW_EUNSURE);
    server.unsaid = 0;
    CHECK(strstr(f.log, "lease/grant kv/txn lease/grant kv/txn ") != NULL);
    server.fails = true;
    server.rate = 0;
    CHECK_INT_EQ(acquire(&f, 1, "ntle", &p), 0);
    fake_etcd_close(&f);
}

TEST(etcd_pool_fault, an_answer_that_is_none_is_unsure)
{
    static struct fake_etcd f;
    vow_pool_permit p;
    begin(&f, NULL);
    CHECK_INT_EQ(acquire(&f, 1, "pn", &p), VOW_EUNSURE);
    CHECK_STR_EQ(f.store->ops->explain(f.store),
                 "etcd gave an answer that is none");
    fake_etcd_close(&f);
}

TEST(etcd_pool_fault, closing_ends_what_is_in_flight_and_gives_it_back)
{
    static struct fake_etcd f;
    struct told t = {.n = 0};
    begin(&f, NULL);
    const vow_permit_request ask = {.pool = pool_name(),
                                    .limits_of = pool_name(),
                                    .token = token_of(1),
                                    .weight = 1,
                                    .lease_ms = LEASE_MS};
    server.shape = "d";
    server.silent = 1;
    f.store->ops->acquire(f.store, &ask, on_places, &t);
    FAKE_ETCD_UNTIL(&f, server.txns == 1);
    CHECK_UINT_EQ(t.n, 0);
    fake_etcd_end(&f);
    CHECK_UINT_EQ(t.n, 1);
    CHECK_INT_EQ(t.code, VOW_ECLOSED);
    CHECK_UINT_EQ(server.txns, 2);
    CHECK_UINT_EQ(server.deletes, 1);
    world_run(f.w);
    world_close(f.w);
}

TEST(etcd_pool_fault, others_who_keep_changing_things_end_a_step)
{
    static struct fake_etcd f;
    struct told t = {.n = 0};
    vow_name pool = pool_name();
    const vow_pool_limits two = {.concurrent = 2};
    begin(&f, NULL);
    server.fails = true;
    server.shape = "a";
    f.store->ops->limit(f.store, &pool, &two, NULL, on_pools, &t);
    CHECK_INT_EQ(wait_for(&f, &t), VOW_EAGAIN);
    fake_etcd_close(&f);
}

TEST(etcd_pool_fault, a_watch_that_breaks_leaves_the_asking)
{
    static struct fake_etcd f;
    vow_pool_permit p;
    begin(&f, NULL);
    server.seats = 2;
    CHECK_INT_EQ(acquire(&f, 2, "pntle", &p), 0);
    CHECK_UINT_EQ(p.status, VOW_STATUS_WAITING);
    FAKE_ETCD_UNTIL(&f, fake_stream(&f) != NULL);
    fake_talk_end(fake_stream(&f));
    server.fails = true;
    CHECK_INT_EQ(acquire(&f, 2, "ntle", &p), 0);
    CHECK_UINT_EQ(p.status, VOW_STATUS_WAITING);
    fake_etcd_close(&f);
}
