/* SPDX-License-Identifier: MIT */
/* A cluster: calls go to who has their slot, and follow it when it moves. */
#include "redis_route_rig.h"
#include "store/redis/redis_route.h"

/* Two servers; which of them has which slots is what `map` says. Slots of the
 * tags: a 15495, b 3300, c 7365. */
static char map[1024];

static void map_of(const struct route_rig *r, size_t low, size_t high)
{
    snprintf(map, sizeof(map),
             "*2\r\n*3\r\n:0\r\n:8191\r\n*3\r\n$9\r\n127.0.0.1\r\n:%u\r\n"
             "$2\r\nid\r\n"
             "*3\r\n:8192\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:%u\r\n"
             "$2\r\nid\r\n",
             r->fakes[low].port, r->fakes[high].port);
}

/* A node says its number to scripts. */
static const char *node(struct fake_conn *c, char **words, size_t n)
{
    static char text[32];
    (void)n;
    if (strcmp(words[0], "CLUSTER") == 0)
        return map;
    if (strcmp(words[0], "EVALSHA") != 0)
        return NULL;
    snprintf(text, sizeof(text), "+%s\r\n", (const char *)c->fake->user);
    return text;
}

static void cluster_open(struct route_rig *r)
{
    static const char *const numbers[] = {"0", "1", "2", "3"};
    rig_begin(r, 3);
    for (size_t i = 0; i < r->n; i++) {
        r->fakes[i].mode = "cluster";
        r->fakes[i].answer = node;
        r->fakes[i].user = (void *)numbers[i];
    }
    map_of(r, 0, 1);
    rig_open(r);
}

TEST(redis_cluster, slots_are_those_of_redis)
{
    CHECK_UINT_EQ(vow__slot_of("123456789", 9), 0x31c3 % VOW__SLOTS);
    CHECK_UINT_EQ(vow__slot_of("a", 1), 15495);
    CHECK_UINT_EQ(vow__slot_of("b", 1), 3300);
    CHECK_UINT_EQ(vow__slot_of("c", 1), 7365);
    CHECK_UINT_EQ(vow__slot_of("", 0), 0);
}

TEST(redis_cluster, calls_go_to_who_has_the_slot)
{
    struct route_rig r;
    cluster_open(&r);
    CHECK(!vow__redis_one_slot(r.redis)); /* not known yet */
    rig_call(&r, "a");
    rig_call(&r, "b");
    UNTIL(&r, r.answered == 2);
    CHECK_STR_EQ(r.calls[0].text, "1");
    CHECK_STR_EQ(r.calls[1].text, "0");
    CHECK_UINT_EQ(r.fakes[0].accepted, 2); /* one is listened to */
    CHECK_UINT_EQ(r.fakes[1].accepted, 1);
    CHECK_UINT_EQ(r.fakes[0].served + r.fakes[1].served, 1);
    CHECK(!vow__redis_one_slot(r.redis));
    rig_end(&r);
}

static const char *moved(struct fake_conn *c, char **words, size_t n)
{
    struct route_rig *r = c->fake->user;
    static char text[64];
    (void)n;
    if (strcmp(words[0], "CLUSTER") == 0)
        return map;
    if (strcmp(words[0], "EVALSHA") != 0)
        return NULL;
    map_of(r, 0, 2);
    snprintf(text, sizeof(text), "-MOVED 15495 127.0.0.1:%u\r\n",
             r->fakes[2].port);
    return text;
}

TEST(redis_cluster, a_slot_that_moved_is_followed_and_the_map_seen_again)
{
    struct route_rig r;
    cluster_open(&r);
    CHECK_STR_EQ(rig_ask(&r, "a")->text, "1");
    rig_pass(&r, 50);
    r.fakes[1].answer = moved;
    r.fakes[1].user = &r;
    CHECK_STR_EQ(rig_ask(&r, "a")->text, "2");
    rig_pass(&r, 50);
    CHECK_HAS(r.fakes[0].log, "CLUSTER CLUSTER ");
    CHECK_STR_EQ(rig_ask(&r, "a")->text, "2");
    CHECK_UINT_EQ(r.calls[2].done, 1);
    rig_end(&r);
}

static const char *ask_other(struct fake_conn *c, char **words, size_t n)
{
    struct route_rig *r = c->fake->user;
    static char text[64];
    (void)n;
    if (strcmp(words[0], "CLUSTER") == 0)
        return map;
    if (strcmp(words[0], "EVALSHA") != 0)
        return NULL;
    snprintf(text, sizeof(text), "-ASK 15495 :%u\r\n", r->fakes[2].port);
    return text;
}

TEST(redis_cluster, a_key_that_is_moving_is_asked_for_elsewhere_once)
{
    struct route_rig r;
    cluster_open(&r);
    CHECK_STR_EQ(rig_ask(&r, "a")->text, "1");
    r.fakes[1].answer = ask_other;
    r.fakes[1].user = &r;
    CHECK_STR_EQ(rig_ask(&r, "a")->text, "2");
    CHECK_HAS(r.fakes[2].log, "ASKING EVALSHA ");
    CHECK_STR_EQ(rig_ask(&r, "a")->text, "2");
    CHECK_HAS(r.fakes[1].log, "EVALSHA EVALSHA EVALSHA ");
    CHECK_HAS(r.fakes[2].log, "ASKING EVALSHA ASKING EVALSHA ");
    rig_end(&r);
}

static const char *to_and_fro(struct fake_conn *c, char **words, size_t n)
{
    struct route_rig *r = c->fake->user;
    static char text[64];
    (void)n;
    if (strcmp(words[0], "CLUSTER") == 0)
        return map;
    if (strcmp(words[0], "EVALSHA") != 0)
        return NULL;
    snprintf(text, sizeof(text), "-MOVED 15495 127.0.0.1:%u\r\n",
             c->fake == &r->fakes[1] ? r->fakes[2].port : r->fakes[1].port);
    return text;
}

TEST(redis_cluster, servers_that_do_not_agree_are_told)
{
    struct route_rig r;
    cluster_open(&r);
    CHECK_INT_EQ(rig_ask(&r, "a")->code, 0);
    r.fakes[1].answer = to_and_fro;
    r.fakes[1].user = &r;
    r.fakes[2].answer = to_and_fro;
    r.fakes[2].user = &r;
    struct route_call *c = rig_call(&r, "a");
    rig_pass(&r, 1000);
    CHECK_INT_EQ(c->code, VOW_ESTORE);
    CHECK_HAS(c->why, "do not agree who has the key");
    rig_end(&r);
}

static const char *nonsense(struct fake_conn *c, char **words, size_t n)
{
    (void)n;
    return strcmp(words[0], "EVALSHA") == 0 ? c->fake->user : NULL;
}

TEST(redis_cluster, an_error_that_makes_no_sense_is_told)
{
    static const char *const all[] = {
        "-MOVED \r\n",          "-MOVED 1\r\n",
        "-MOVED 1 x\r\n",       "-MOVED 16384 127.0.0.1:1\r\n",
        "-MOVED 1 h:0\r\n",     "-MOVED 1 h:65536\r\n",
        "-ASK x 127.0.0.1:\r\n"};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct route_rig r;
        cluster_open(&r);
        CHECK_INT_EQ(rig_ask(&r, "a")->code, 0);
        r.fakes[1].answer = nonsense;
        r.fakes[1].user = (void *)all[i];
        struct route_call *c = rig_ask(&r, "a");
        CHECK_INT_EQ(c->code, VOW_ESTORE);
        CHECK_HAS(c->why, "do not agree");
        rig_end(&r);
    }
}

TEST(redis_cluster, a_slot_without_a_server_is_waited_for)
{
    struct route_rig r;
    char all[sizeof(map)];
    cluster_open(&r);
    memcpy(all, map, sizeof(all));
    snprintf(map, sizeof(map),
             "*1\r\n*3\r\n:0\r\n:8191\r\n*2\r\n$0\r\n\r\n:%u\r\n",
             r.fakes[0].port); /* it does not know its own address */
    CHECK_STR_EQ(rig_ask(&r, "b")->text, "0");
    struct route_call *c = rig_call(&r, "a");
    rig_pass(&r, 500);
    CHECK_UINT_EQ(c->done, 0);
    memcpy(map, all, sizeof(all));
    rig_pass(&r, 100);
    CHECK_STR_EQ(c->text, "1");
    rig_end(&r);
}

TEST(redis_cluster, a_slot_that_nobody_takes_is_told)
{
    struct route_rig r;
    cluster_open(&r);
    snprintf(map, sizeof(map), "*0\r\n");
    struct route_call *c = rig_call(&r, "a");
    rig_settle(&r);
    rig_pass(&r, 1050);
    CHECK_INT_EQ(c->code, VOW_ESTORE);
    CHECK_HAS(c->why, "nobody in the cluster has it");
    rig_end(&r);
}

TEST(redis_cluster, a_node_that_is_gone_is_replaced_by_the_map)
{
    struct route_rig r;
    cluster_open(&r);
    CHECK_STR_EQ(rig_ask(&r, "a")->text, "1");
    map_of(&r, 0, 2);
    fake_deaf(&r.fakes[1]);
    fake_hang_up(&r.fakes[1]);
    rig_settle(&r);
    struct route_call *c = rig_call(&r, "a");
    rig_pass(&r, 200);
    CHECK_STR_EQ(c->text, "2");
    rig_end(&r);
}

static const char *mute(struct fake_conn *c, char **words, size_t n)
{
    (void)c;
    (void)n;
    return strcmp(words[0], "EVALSHA") == 0 ? "" : NULL;
}

TEST(redis_cluster, a_node_that_is_gone_is_left_when_it_has_answered)
{
    struct route_rig r;
    cluster_open(&r);
    CHECK_STR_EQ(rig_ask(&r, "a")->text, "1");
    fake_fn speaks = r.fakes[1].answer;
    r.fakes[1].answer = mute;
    struct route_call *c = rig_call(&r, "a");
    rig_settle(&r);
    map_of(&r, 0, 2);
    vow__cluster_refresh(vow__redis_route(r.redis)->cluster);
    rig_pass(&r, 50);
    CHECK(fake_last(&r.fakes[1]) != NULL); /* it owes an answer */
    r.fakes[1].answer = speaks;
    fake_say(fake_last(&r.fakes[1]), "+late\r\n");
    rig_pass(&r, 50);
    CHECK_STR_EQ(c->text, "late");
    CHECK(fake_last(&r.fakes[1]) == NULL);
    rig_end(&r);
}

TEST(redis_cluster, another_node_is_listened_to_when_the_first_is_lost)
{
    struct route_rig r;
    cluster_open(&r);
    CHECK_STR_EQ(rig_ask(&r, "a")->text, "1");
    map_of(&r, 1, 1);
    fake_deaf(&r.fakes[0]);
    fake_hang_up(&r.fakes[0]);
    rig_pass(&r, 300);
    CHECK_UINT_EQ(r.fakes[1].served, 1);
    CHECK_UINT_EQ(r.doubts, 1);
    struct route_call *c = rig_call(&r, "b");
    rig_pass(&r, 300);
    CHECK_STR_EQ(c->text, "1");
    rig_end(&r);
}

static void on_each(struct vow__redis *redis, int code,
                    const struct vow__resp *reply, size_t node_of, bool last,
                    void *user)
{
    struct route_rig *r = user;
    struct route_call *c = &r->calls[r->asked++];
    (void)redis;
    c->rig = r;
    c->done++;
    r->answered++;
    c->node = node_of;
    c->last = last;
    rig_note(c, code, reply);
}

TEST(redis_cluster, every_master_is_asked_by_its_number)
{
    struct route_rig r;
    struct vow__buf c;
    cluster_open(&r);
    rig_plain(&r, "DBSIZE", &c);
    vow__redis_each(r.redis, &c, on_each, &r);
    UNTIL(&r, r.answered == 2);
    CHECK(r.calls[0].node != r.calls[1].node);
    CHECK(!r.calls[0].last && r.calls[1].last);
    CHECK_STR_EQ(r.calls[0].text, "OK");
    struct route_call *one = rig_next(&r);
    vow__redis_one(r.redis, 7, &c, rig_reply, one);
    UNTIL(&r, one->done);
    CHECK_INT_EQ(one->code, VOW_ESTORE);
    r.fakes[1].answer = moved; /* the second leaves the cluster */
    r.fakes[1].user = &r;
    CHECK_STR_EQ(rig_ask(&r, "a")->text, "2");
    rig_pass(&r, 50);
    one = rig_next(&r);
    vow__redis_one(r.redis, 1, &c, rig_reply, one);
    UNTIL(&r, one->done);
    CHECK_INT_EQ(one->code, VOW_ESTORE);
    CHECK_HAS(one->why, "no such server");
    vow__buf_fini(&c);
    rig_end(&r);
}

TEST(redis_cluster, a_node_that_left_the_cluster_is_not_believed)
{
    struct route_rig r;
    cluster_open(&r);
    CHECK_STR_EQ(rig_ask(&r, "a")->text, "1");
    CHECK_STR_EQ(rig_ask(&r, "b")->text, "0");
    rig_pass(&r, 50);
    unsigned before = r.fakes[0].accepted + r.fakes[1].accepted;
    static const char *const answers[] = {"*0\r\n", "-ERR no cluster\r\n"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(map, sizeof(map), "%s", answers[i]);
        fake_hang_up(&r.fakes[1]); /* so that it is asked again */
        rig_pass(&r, 100);
        CHECK_STR_EQ(rig_ask(&r, "b")->text, "0"); /* what is known stays */
    }
    CHECK(r.fakes[0].accepted + r.fakes[1].accepted > before + 2);
    CHECK(r.doubts >= 2);
    map_of(&r, 0, 1);
    rig_pass(&r, 3000);
    CHECK_STR_EQ(rig_ask(&r, "a")->text, "1");
    rig_end(&r);
}

/* ---- anything at all ----------------------------------------------------- */

TEST(redis_cluster, a_map_of_any_shape_does_no_harm)
{
    uint64_t state = test_seed();
    for (int round = 0; round < 8; round++) {
        struct route_rig r;
        cluster_open(&r);
        rig_settle(&r);
        size_t n = (size_t)snprintf(map, sizeof(map), "*3\r\n");
        for (int i = 0; i < 3; i++) {
            static const char *const shapes[] = {
                "_\r\n",
                ":5\r\n",
                "*0\r\n",
                "*3\r\n:9\r\n:3\r\n*2\r\n$1\r\nh\r\n:1\r\n",
                "*3\r\n:0\r\n:99999\r\n*2\r\n$1\r\nh\r\n:1\r\n",
                "*3\r\n:0\r\n:1\r\n*2\r\n*0\r\n:1\r\n",
                "*3\r\n:0\r\n:1\r\n*2\r\n$1\r\nh\r\n:0\r\n",
                "*3\r\n$1\r\nx\r\n:1\r\n_\r\n",
                "*2\r\n:0\r\n:16383\r\n"};
            n += (size_t)snprintf(map + n, sizeof(map) - n, "%s",
                                  shapes[test_random(&state) % 9]);
        }
        struct route_call *c = rig_call(&r, "zz");
        rig_pass(&r, 1100);
        CHECK_UINT_EQ(c->done, 1);
        rig_end(&r);
    }
}

FAULT_SWEEP(redis_cluster, a_cluster_survives_every_fault, FAULT_ALLOC)
{
    static struct route_rig r;
    char url[64];
    static const char *const numbers[] = {"0", "1"};
    memset(&r, 0, sizeof(r));
    r.w = w;
    for (r.n = 0; r.n < 2; r.n++) {
        fake_open(&r.fakes[r.n]);
        r.fakes[r.n].mode = "cluster";
        r.fakes[r.n].answer = node;
        r.fakes[r.n].user = (void *)numbers[r.n];
    }
    map_of(&r, 0, 1);
    snprintf(url, sizeof(url), "redis://127.0.0.1:%u", r.fakes[0].port);
    if (rig_try_open(&r, url, NULL)) {
        rig_call(&r, "a");
        rig_call(&r, "b");
        for (int i = 0; i < 30 && r.answered < r.asked; i++)
            rig_pass(&r, 50);
        CHECK_UINT_EQ(r.answered, r.asked);
        for (size_t i = 0; i < r.asked; i++)
            CHECK(r.calls[i].code == 0 || fault_fired(w));
        rig_end(&r);
    } else {
        fake_close(&r.fakes[0]);
        fake_close(&r.fakes[1]);
    }
}
