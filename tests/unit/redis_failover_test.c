/* SPDX-License-Identifier: MIT */
/* The store when real Sentinels put another server in the place of the master,
 * and when a real cluster moves slots and loses nodes. */
#include "redis_server_rig.h"
#include "store/redis/redis_route.h"

/* ---- Sentinels ----------------------------------------------------------- */

static void watched_begin(struct rig *r)
{
    struct redis_watched *w = malloc(sizeof(*w));
    CHECK(w != NULL);
    redis_watched_start(w, NULL);
    r->state = w;
}

enum { PATIENT_MS = 30000 }; /* on a machine that has much else to do */

static vow_store *open_at(struct rig *r, const char *url, uint64_t timeout_ms)
{
    VOW_AUTO(vow_future)
    opened = vow_store_redis_open(
        r->world.loop, url,
        VOW_REDIS_OPTS(.value_max = RIG_VALUE_MAX, .timeout_ms = timeout_ms));
    if (vow_state_of(opened) != VOW_FULFILLED)
        FAIL("%s", vow_error_message(vow_error_of(opened)));
    return vow_as_ptr(vow_get(opened));
}

static vow_store *watched_open(struct rig *r)
{
    return open_at(r, ((struct redis_watched *)r->state)->url, PATIENT_MS);
}

static void watched_end(struct rig *r)
{
    redis_watched_stop(r->state);
    free(r->state);
}

static const struct rig_store rig_watched = {.name = "redis",
                                             .real_time = true,
                                             .begin = watched_begin,
                                             .open = watched_open,
                                             .end = watched_end};

#define WATCHED(n)                                                             \
    static void watched_##n(struct rig *r);                                    \
    TEST(redis_failover, n)                                                    \
    {                                                                          \
        contract_run(&rig_watched, watched_##n);                               \
    }                                                                          \
    static void watched_##n(struct rig *r)

WATCHED(the_master_is_found_and_a_sentinel_is_not_taken_for_it)
{
    struct redis_watched *w = r->state;
    CHECK_INT_EQ(rig_claim(r, 0, ASK("a", 1)).status, VOW_STATUS_OWNED);
    CHECK_INT_EQ(rig_claim(r, 1, ASK("a", 2)).status, VOW_STATUS_WAITING);
    CHECK(strstr(redis_say(&w->master, "KEYS", "vow:*", NULL), "vow:p:") !=
          NULL);
    rig_close(r, 2);
    r->at[2] = open_at(r, w->sentinels[0].url, PATIENT_MS);
    CHECK_INT_EQ(rig_claim(r, 2, ASK("a", 3)).code, VOW_ESTORE);
    CHECK_HAS(WHY(r, 2), "is a Sentinel");
    CHECK_HAS(WHY(r, 2), "redis-sentinel://");
    rig_close(r, 2);
    r->at[2] = open_at(r, w->replica.url, PATIENT_MS);
    CHECK_INT_EQ(rig_claim(r, 2, ASK("a", 3)).code, VOW_ESTORE);
    CHECK_HAS(WHY(r, 2), "is a replica; its master is 127.0.0.1:");
}

WATCHED(a_killed_master_is_replaced_and_epochs_go_on)
{
    struct redis_watched *w = r->state;
    struct rig_answer a = rig_claim(r, 0, ASK("a", 1));
    CHECK_INT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_INT_EQ(rig_claim(r, 1, ASK("a", 2)).status, VOW_STATUS_WAITING);
    unsigned doubts = r->news[1].doubts;
    redis_kill(&w->master);
    struct rig_answer b = claim_at_last(r, 2, ASK("b", 3));
    CHECK_INT_EQ(b.status, VOW_STATUS_OWNED);
    rig_expect(r, &r->news[1].doubts, doubts + 1);
    struct rig_answer c = claim_at_last(r, 1, ASK("a", 2, .floor = a.epoch));
    CHECK(c.status == VOW_STATUS_WAITING || c.epoch > a.epoch);
    CHECK(redis_say(&w->replica, "ROLE", NULL)[0] == 'm');
}

WATCHED(a_planned_failover_is_followed_at_once)
{
    struct redis_watched *w = r->state;
    CHECK_INT_EQ(rig_claim(r, 0, ASK("a", 1)).status, VOW_STATUS_OWNED);
    CHECK_STR_EQ(
        redis_say(&w->sentinels[0], "SENTINEL", "FAILOVER", "main", NULL),
        "OK");
    rig_expect(r, &r->news[0].doubts, 1);
    CHECK_INT_EQ(claim_at_last(r, 0, ASK("b", 1)).status, VOW_STATUS_OWNED);
    redis_until(&w->replica, "master", "ROLE", NULL, NULL);
    CHECK_INT_EQ(claim_at_last(r, 3, ASK("b", 4)).status, VOW_STATUS_WAITING);
}

/* ---- cluster ------------------------------------------------------------- */

static void cluster_begin(struct rig *r)
{
    static const char *const args[] = {"--cluster-node-timeout", "5000",
                                       "--cluster-require-full-coverage", "no",
                                       NULL};
    struct redis_cluster *c = malloc(sizeof(*c));
    CHECK(c != NULL);
    redis_cluster_start(c, args);
    r->state = c;
}

static vow_store *cluster_open(struct rig *r)
{
    return open_at(r, ((struct redis_cluster *)r->state)->url, PATIENT_MS);
}

static void cluster_end(struct rig *r)
{
    redis_cluster_stop(r->state);
    free(r->state);
}

static const struct rig_store rig_cluster = {.name = "redis",
                                             .real_time = true,
                                             .begin = cluster_begin,
                                             .open = cluster_open,
                                             .end = cluster_end};

#define CLUSTER(n)                                                             \
    static void cluster_##n(struct rig *r, struct redis_cluster *c);           \
    static void cluster_body_##n(struct rig *r)                                \
    {                                                                          \
        cluster_##n(r, r->state);                                              \
    }                                                                          \
    TEST(redis_failover, n)                                                    \
    {                                                                          \
        contract_run(&rig_cluster, cluster_body_##n);                          \
    }                                                                          \
    static void cluster_##n(struct rig *r, struct redis_cluster *c)

static uint16_t slot_of(const char *text)
{
    char tag[VOW_NAME_TEXT];
    vow_name name = rig_name(text);
    vow_name_text(&name, tag);
    return vow__slot_of(tag, strlen(tag));
}

/* Which node has the slot at the beginning. */
static size_t node_of(const char *text)
{
    size_t at = slot_of(text) / (VOW__SLOTS / REDIS_NODES);
    return at < REDIS_NODES ? at : REDIS_NODES - 1;
}

/* A name whose slot is the node's. */
static const char *name_at(size_t node, char *text, size_t size)
{
    for (int i = 0; i < 1000; i++) {
        snprintf(text, size, "n%d", i);
        if (node_of(text) == node)
            return text;
    }
    FAIL("no name for node %zu", node);
}

CLUSTER(names_are_on_all_nodes)
{
    char text[16];
    for (size_t i = 0; i < REDIS_NODES; i++) {
        CHECK_INT_EQ(rig_claim(r, 0, ASK(name_at(i, text, 16), 1)).status,
                     VOW_STATUS_OWNED);
        CHECK_INT_EQ(rig_claim(r, 1, ASK(name_at(i, text, 16), 2)).status,
                     VOW_STATUS_WAITING);
        CHECK(strcmp(redis_say(&c->nodes[i], "DBSIZE", NULL), "0") != 0);
    }
    struct rig_answer list[8];
    CHECK_UINT_EQ(rig_list(r, 2, list, 8), REDIS_NODES);
}

static void move_keys(struct redis_server *from, const struct redis_server *to,
                      const char *slot)
{
    char keys[1024], port[8];
    snprintf(port, sizeof(port), "%u", to->port);
    for (;;) {
        snprintf(keys, sizeof(keys), "%s",
                 redis_say(from, "CLUSTER", "GETKEYSINSLOT", slot, "1", NULL));
        if (keys[0] == 0)
            return;
        CHECK_STR_EQ(redis_say(from, "MIGRATE", "127.0.0.1", port, keys, "0",
                               "60000", NULL),
                     "OK");
    }
}

static void set_slot(struct redis_server *s, const char *slot, const char *how,
                     const char *id)
{
    CHECK_STR_EQ(redis_say(s, "CLUSTER", "SETSLOT", slot, how, id, NULL), "OK");
}

struct pending {
    unsigned done;
    int code;
    uint32_t status;
};

static void on_claimed(int code, const vow_record *records, size_t n,
                       void *user)
{
    struct pending *p = user;
    p->done++;
    p->code = code;
    p->status = n == 1 ? records[0].status : 0;
}

/* While a slot moves, a script of several keys has to wait (TRYAGAIN), by
 * whichever server it is sent to the other (ASK, MOVED). */
CLUSTER(a_slot_is_moved_while_it_is_used)
{
    char text[16], slot[8];
    struct pending p = {.done = 0};
    struct redis_server *from = &c->nodes[1];
    struct redis_server *to = &c->nodes[2];
    name_at(1, text, sizeof(text));
    snprintf(slot, sizeof(slot), "%u", slot_of(text));
    struct rig_answer a = rig_claim(r, 0, ASK(text, 1));
    CHECK_INT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_INT_EQ(rig_claim(r, 1, ASK(text, 2)).status, VOW_STATUS_WAITING);
    set_slot(to, slot, "IMPORTING", c->ids[1]);
    set_slot(from, slot, "MIGRATING", c->ids[2]);
    r->at[2]->ops->claim(r->at[2], ASK(text, 3), on_claimed, &p);
    rig_advance_ms(r, 100);
    move_keys(from, to, slot);
    rig_advance_ms(r, 100);
    set_slot(to, slot, "NODE", c->ids[2]);
    rig_advance_ms(r, 100);
    set_slot(from, slot, "NODE", c->ids[2]);
    rig_expect(r, &p.done, 1);
    CHECK_INT_EQ(p.code, 0);
    CHECK_INT_EQ(p.status, VOW_STATUS_WAITING);
    CHECK_INT_EQ(rig_claim(r, 3, ASK(text, 4)).status,
                 VOW_STATUS_WAITING); /* MOVED */
    vow_hold hold = {
        .name = rig_name(text), .token = rig_token(1), .epoch = a.epoch};
    CHECK_INT_EQ(rig_pulse(r, 0, &hold, LONG_MS).status, VOW_STATUS_OWNED);
    CHECK_INT_EQ(rig_commit(r, 0, COMMIT(text, 1, a.epoch), "v").status,
                 VOW_STATUS_OWNED);
    for (size_t i = 1; i < 4; i++)
        rig_expect(r, &r->news[i].records, 1);
}

CLUSTER(a_slot_that_keeps_moving_is_told)
{
    char text[16], slot[8];
    name_at(1, text, sizeof(text));
    snprintf(slot, sizeof(slot), "%u", slot_of(text));
    CHECK_INT_EQ(rig_claim(r, 0, ASK(text, 1)).status, VOW_STATUS_OWNED);
    set_slot(&c->nodes[2], slot, "IMPORTING", c->ids[1]);
    set_slot(&c->nodes[1], slot, "MIGRATING", c->ids[2]);
    rig_close(r, 1);
    r->at[1] = open_at(r, c->url, 5000);
    CHECK_INT_EQ(rig_claim(r, 1, ASK(text, 2)).code, VOW_ESTORE);
    CHECK_HAS(WHY(r, 1), "is moving these keys to another server");
    set_slot(&c->nodes[1], slot, "STABLE", NULL);
    CHECK_INT_EQ(claim_at_last(r, 1, ASK(text, 2)).status, VOW_STATUS_WAITING);
}

CLUSTER(a_node_that_is_lost_takes_only_its_own_names_along)
{
    char lost[16], kept[16];
    name_at(2, lost, sizeof(lost));
    name_at(1, kept, sizeof(kept));
    CHECK_INT_EQ(rig_claim(r, 0, ASK(lost, 1)).status, VOW_STATUS_OWNED);
    CHECK_INT_EQ(rig_claim(r, 0, ASK(kept, 2)).status, VOW_STATUS_OWNED);
    redis_kill(&c->nodes[2]);
    CHECK(rig_claim(r, 0, ASK(lost, 1)).code != 0);
    CHECK_INT_EQ(rig_claim(r, 0, ASK(kept, 2)).status, VOW_STATUS_OWNED);
    redis_again(&c->nodes[2]);
    CHECK_INT_EQ(claim_at_last(r, 0, ASK(lost, 1)).status, VOW_STATUS_OWNED);
}

CLUSTER(another_node_tells_when_the_one_that_was_asked_is_lost)
{
    char text[16];
    name_at(1, text, sizeof(text));
    struct rig_answer a = rig_claim(r, 0, ASK(text, 1));
    CHECK_INT_EQ(rig_claim(r, 1, ASK(text, 2)).status, VOW_STATUS_WAITING);
    unsigned doubts = r->news[1].doubts;
    redis_kill(&c->nodes[0]); /* the only one in the address */
    rig_expect(r, &r->news[1].doubts, doubts + 1);
    CHECK_INT_EQ(claim_at_last(r, 1, ASK(text, 2)).status, VOW_STATUS_WAITING);
    CHECK_INT_EQ(rig_commit(r, 0, COMMIT(text, 1, a.epoch), "v").status,
                 VOW_STATUS_OWNED);
    rig_expect(r, &r->news[1].records, 1);
}
