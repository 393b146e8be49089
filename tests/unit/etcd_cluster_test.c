/* SPDX-License-Identifier: MIT */
/* Calls to real members of etcd: that die, stand still and come back, that want
 * to know who we are, and that speak TLS. */
#include "tls_rig.h"
/* Behind it, because both have a server. */
#include "etcd_kit.h"
#include "store/etcd/etcd_call.h"
#include "vow/fiber.h"
#include "vow/store_etcd.h"

#define CHECK_HAS(text, part)                                                  \
    do {                                                                       \
        const char *text_ = (text);                                            \
        if (strstr(text_, (part)) == NULL)                                     \
            FAIL("no \"%s\" in \"%s\"", (part), text_);                        \
    } while (0)
#define WHY(c) vow__etcd_explain((c)->store)

struct cluster {
    struct etcd_kit kit;
    struct world w;
    vow_store *store;
    struct vow__etcd *etcd;
    int code;
    unsigned lines, ends;
    int end_code; /* of a stream */
};
static struct cluster c;

/* Without a timeout in the options it is one for a busy machine. */
static void store_open(const char *options, const vow_etcd_opts *opts)
{
    char url[512];
    const char *patient = options[0] == 0 ? "?timeout=30000" : "&timeout=30000";
    snprintf(url, sizeof(url), "%s%s%s", c.kit.url, options,
             strstr(options, "timeout=") != NULL ? "" : patient);
    world_open_real(&c.w);
    VOW_AUTO(vow_future) opened = vow_store_etcd_open(c.w.loop, url, opts);
    if (vow_loop_run_until(c.w.loop, opened) < 0 ||
        vow_state_of(opened) != VOW_FULFILLED)
        FAIL("%s", vow_error_message(vow_error_of(opened)));
    c.store = vow_as_ptr(vow_get(opened));
    c.etcd = vow__etcd_of(c.store);
}

static void store_close(void)
{
    VOW_AUTO(vow_future) closed = c.store->ops->close(c.store);
    CHECK_INT_EQ(vow_loop_run_until(c.w.loop, closed), 0);
    closed = vow_future_unref(closed);
    world_run(&c.w);
    world_close(&c.w);
}

static void pass(uint64_t ms)
{
    VOW_AUTO(vow_future) f = vow_delay(c.w.loop, ms);
    CHECK_INT_EQ(vow_loop_run_until(c.w.loop, f), 0);
}

/* A request on a fiber. */
struct asked {
    const char *path;
    struct vow__buf body;
};

static vow_next ask_main(void *arg)
{
    struct asked *a = arg;
    json_t *root = NULL;
    c.code = vow__etcd_await(c.etcd, a->path, &a->body, false, 0, &root);
    CHECK((c.code == 0) == (root != NULL));
    json_decref(root);
    return vow_ok(vow_nothing());
}

static int ask_now(struct asked *a)
{
    VOW_AUTO(vow_future) fiber = vow_async(c.w.loop, ask_main, a);
    CHECK_INT_EQ(vow_loop_run_until(c.w.loop, fiber), 0);
    return c.code;
}

/* Write a key below the prefix, or another; what came of it. */
static int put(const char *prefix)
{
    struct vow__txn t;
    struct vow__key key = vow__key("k", NULL, "");
    vow__txn_init(&t, vow__etcd_alloc(c.etcd), prefix);
    vow__txn_put(&t, VOW__THEN, &key, NULL, 0);
    struct asked a = {.path = "kv/txn"};
    vow__txn_body(&t, &a.body);
    return ask_now(&a);
}

/* Until it does; two minutes mean that it never does. */
static void put_until_good(void)
{
    uint64_t due = vow_loop_due_ns(c.w.loop, 120000);
    while (put("vow/") != 0) {
        CHECK(c.code == VOW_EUNSURE || c.code == VOW_ESTORE);
        if (vow_loop_now_ns(c.w.loop) > due)
            FAIL("%s", WHY(&c));
    }
}

static uint64_t now_ms(void)
{
    return vow_loop_now_ns(c.w.loop) / 1000000;
}

/* ---- members that die ---------------------------------------------------- */

TEST(etcd_cluster, it_goes_on_when_the_leader_dies)
{
    etcd_start(&c.kit, ETCD_OPTS(.members = 3, .beat_ms = 50, .elect_ms = 500));
    store_open("", NULL);
    put_until_good();
    for (int i = 0; i < 2; i++) {
        size_t leader = etcd_leader(&c.kit);
        etcd_kill(&c.kit, leader);
        put_until_good();
        put_until_good(); /* and a busy machine may elect once more */
        etcd_again(&c.kit, leader);
    }
    store_close();
    etcd_stop(&c.kit);
}

TEST(etcd_cluster, a_member_that_stands_still_is_left)
{
    etcd_start(&c.kit, ETCD_OPTS(.members = 3));
    store_open("?timeout=1500", NULL);
    put_until_good();
    size_t first = vow__etcd_calls(c.etcd)->good;
    etcd_freeze(&c.kit, first);
    uint64_t from = now_ms();
    CHECK_INT_EQ(put("vow/"), VOW_EUNSURE);
    CHECK(now_ms() - from >= 500); /* its part */
    CHECK_HAS(WHY(&c), "did not answer within");
    put_until_good(); /* it may have been the leader */
    CHECK(vow__etcd_calls(c.etcd)->good != first);
    etcd_thaw(&c.kit, first);
    store_close();
    etcd_stop(&c.kit);
}

static void on_line(const json_t *root, void *user)
{
    (void)root;
    (void)user;
    c.lines++;
}

static void on_end(int code, void *user)
{
    (void)user;
    c.ends++;
    c.end_code = code;
}

/* Without a majority the last member knows of it only after a while, and says
 * nothing until then: a step is unsure, and it may be taken for one that stands
 * still. */
TEST(etcd_cluster, without_a_majority_it_is_said_in_time)
{
    enum { TIMEOUT_MS = 10000, ADDED_MS = 9000 };
    const struct vow__etcd_stream_events events = {.on_line = on_line,
                                                   .on_end = on_end};
    struct vow__buf body;
    etcd_start(&c.kit, ETCD_OPTS(.members = 3));
    store_open("?timeout=10000", NULL);
    put_until_good();
    vow__etcd_buf_init(&body, vow__etcd_alloc(c.etcd));
    vow__buf_text(&body, "{\"create_request\":{\"key\":\"AA==\"}}");
    CHECK(vow__etcd_stream(c.etcd, "watch", &body, &events) != NULL);
    while (c.lines == 0)
        pass(1);
    etcd_kill(&c.kit, 1);
    etcd_kill(&c.kit, 2);
    bool seen = false;
    for (int i = 0; i < 3 || !seen; i++) {
        uint64_t from = now_ms();
        CHECK(put("vow/") == VOW_ESTORE || c.code == VOW_EUNSURE);
        CHECK(now_ms() - from <
              2 * TIMEOUT_MS + ADDED_MS); /* one is forgiven */
        seen |= c.code == VOW_ESTORE;
        CHECK_HAS(WHY(&c), c.code == VOW_ESTORE ? "cannot be used" : "");
    }
    while (c.ends == 0) /* a stream, too: it wants a leader */
        pass(10);
    CHECK(c.end_code == VOW_ESTORE || c.end_code == VOW_EUNSURE);
    etcd_again(&c.kit, 1);
    put_until_good();
    store_close();
    etcd_stop(&c.kit);
}

/* ---- users --------------------------------------------------------------- */

TEST(etcd_cluster, a_user_is_let_in_again_when_its_token_is_forgotten)
{
    etcd_start(&c.kit, ETCD_OPTS(.user = "me", .password = "open sesame",
                                 .prefix = "vow/"));
    store_open("", VOW_ETCD_OPTS(.user = "me", .password = "open sesame"));
    CHECK_INT_EQ(put("vow/"), 0);
    etcd_again(&c.kit, 0);
    CHECK_INT_EQ(put("vow/"), 0);
    CHECK_INT_EQ(put("other/"), VOW_ESTORE);
    CHECK_HAS(WHY(&c), "a role of me needs the right readwrite on all keys "
                       "with the prefix vow/");
    CHECK_STR_EQ(etcd_get(&c.kit, "vow/k"), "");
    CHECK(etcd_get(&c.kit, "other/k") == NULL);
    store_close();
    store_open("", VOW_ETCD_OPTS(.user = "me", .password = "sesame"));
    CHECK_INT_EQ(put("vow/"), VOW_ESTORE);
    CHECK_HAS(WHY(&c), "the user or the password is wrong");
    CHECK(strstr(WHY(&c), "sesame") == NULL);
    store_close();
    store_open("", NULL);
    CHECK_INT_EQ(put("vow/"), VOW_ESTORE);
    CHECK_HAS(WHY(&c), "wants to know who we are");
    store_close();
    etcd_stop(&c.kit);
}

TEST(etcd_cluster, who_is_not_asked_for_a_password_goes_on)
{
    etcd_start(&c.kit, NULL);
    store_open("", VOW_ETCD_OPTS(.user = "me", .password = "open sesame"));
    CHECK_INT_EQ(put("vow/"), 0);
    CHECK_HAS(WHY(&c), "authentication is not enabled");
    store_close();
    etcd_stop(&c.kit);
}

/* ---- errors of a real server --------------------------------------------- */

static int say(const char *path, const char *text)
{
    struct asked a = {.path = path};
    vow__etcd_buf_init(&a.body, vow__etcd_alloc(c.etcd));
    vow__buf_text(&a.body, text);
    return ask_now(&a);
}

TEST(etcd_cluster, a_server_refuses_as_we_think)
{
    static char big[4 << 20];
    static const char *const extra[] = {"--quota-backend-bytes=4000000", NULL};
    etcd_start(&c.kit, ETCD_OPTS(.extra = extra));
    store_open("?timeout=60000", NULL); /* there is much to read */
    CHECK_INT_EQ(say("kv/put", "{\"key\":\"eA==\",\"lease\":\"77\"}"),
                 VOW_ENOENT);
    CHECK_INT_EQ(say("lease/revoke", "{\"ID\":\"77\"}"), VOW_ENOENT);
    CHECK_INT_EQ(say("lease/keepalive", "{\"ID\":\"77\"}"), 0);
    CHECK_INT_EQ(say("kv/put", "{what"), VOW_ESTORE);
    CHECK_INT_EQ(say("kv/nothing", "{}"), VOW_ESTORE);
    CHECK_HAS(WHY(&c), "is no etcd server");
    CHECK_INT_EQ(say("kv/range", "{\"key\":\"eA==\",\"revision\":\"999\"}"),
                 VOW_ESTORE);
    for (size_t n = 1700000; n <= 3000000; n += 1300000) {
        size_t at = (size_t)snprintf(big, sizeof(big),
                                     "{\"key\":\"eA==\",\"value\":\"");
        memset(big + at, 'A', n * 4 / 3 / 4 * 4);
        snprintf(big + at + n * 4 / 3 / 4 * 4, 8, "\"}");
        CHECK_INT_EQ(say("kv/put", big), VOW_E2BIG);
        CHECK_HAS(WHY(&c), "--max-request-bytes");
    }
    size_t at =
        (size_t)snprintf(big, sizeof(big), "{\"key\":\"eA==\",\"value\":\"");
    memset(big + at, 'A', 1000000);
    snprintf(big + at + 1000000, 8, "\"}");
    for (int i = 0; i < 20 && say("kv/put", big) == 0; i++)
        ;
    CHECK_INT_EQ(c.code, VOW_ESTORE); /* it is full */
    CHECK_HAS(WHY(&c), "etcdctl alarm disarm");
    store_close();
    etcd_stop(&c.kit);
}

/* ---- TLS ----------------------------------------------------------------- */

TEST(etcd_cluster, a_server_that_is_trusted_is_used)
{
    static struct office o;
    char options[512];
    office_open(&o);
    office_write(o.other_file, &o.server, true, true);
    etcd_start(&c.kit,
               ETCD_OPTS(.cert_file = o.other_file, .key_file = o.other_file));
    snprintf(options, sizeof(options), "?ca-file=%s", o.ca_file);
    store_open(options, NULL);
    CHECK_INT_EQ(put("vow/"), 0);
    store_close();
    store_open("", NULL);
    CHECK_INT_EQ(put("vow/"), VOW_ESTORE);
    CHECK_HAS(WHY(&c), "certificate");
    store_close();
    etcd_stop(&c.kit);
    office_close(&o);
}

TEST(etcd_cluster, a_server_that_wants_to_know_us_is_told)
{
    static struct office o;
    char options[512];
    office_open(&o);
    office_write(o.other_file, &o.server, true, true);
    etcd_start(&c.kit,
               ETCD_OPTS(.cert_file = o.other_file, .key_file = o.other_file,
                         .ca_file = o.ca_file));
    snprintf(options, sizeof(options), "?ca-file=%s&cert-file=%s&key-file=%s",
             o.ca_file, o.cert_file, o.key_file);
    store_open(options, NULL);
    CHECK_INT_EQ(put("vow/"), 0);
    store_close();
    snprintf(options, sizeof(options), "?ca-file=%s", o.ca_file);
    store_open(options, NULL);
    CHECK(put("vow/") == VOW_ESTORE || c.code == VOW_EUNSURE);
    store_close();
    etcd_stop(&c.kit);
    office_close(&o);
}
