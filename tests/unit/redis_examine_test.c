/* SPDX-License-Identifier: MIT */
/* redis_examine_test.c - what a doctor finds at real servers, and which rights
 * are enough. */
#include "findings.h"
#include "redis_cluster_rig.h"
#include "store/redis/redis_internal.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* What vow-store(7) tells to give. */
static const char RIGHTS[] =
    "-@all ~vow:* &vow:i:* +role +eval +evalsha +subscribe "
    "+publish +time +scan +get +set +del +exists +persist +pexpire "
    "+pexpireat +pttl "
    "+hset +hget "
    "+hmget +hgetall +hkeys +hlen +hdel +hexists +hincrby +llen +lrange "
    "+rpush +zadd +zcard +zrange +zrangebylex +zrangebyscore +zrank +zrem "
    "+zremrangebyscore +zscore";

static struct redis_server *server(struct rig *r)
{
    return r->state;
}

/* ---- findings ------------------------------------------------------------ */

static const struct findings *examine(struct rig *r, size_t i)
{
    static struct findings f;
    f = (struct findings){.done = 0};
    r->at[i]->ops->examine(r->at[i], on_findings, &f);
    rig_expect(r, &f.done, 1);
    return &f;
}

static void set(struct rig *r, const char *name, const char *value)
{
    CHECK_STR_EQ(redis_say(server(r), "CONFIG", "SET", name, value, NULL),
                 "OK");
}

static void common_server(struct rig *r)
{
    const struct findings *f = examine(r, 0);
    CHECK_UINT_EQ(f->n, 10);
    check_finding(f, "server", VOW_FINDING_GOOD, "standalone, master");
    check_finding(f, "eviction", VOW_FINDING_GOOD, "noeviction");
    check_finding(f, "memory", VOW_FINDING_GOOD, "no limit");
    check_finding(f, "disk", VOW_FINDING_WARN, "nothing is kept");
    check_finding(f, "replicas", VOW_FINDING_GOOD, "none");
    check_finding(f, "clock", VOW_FINDING_GOOD, "ours");
    check_finding(f, "latency", VOW_FINDING_GOOD, "ms");
    check_finding(f, "rights", VOW_FINDING_GOOD, "all");
    check_finding(f, "encryption", VOW_FINDING_GOOD, "socket");
    check_finding(f, "password", VOW_FINDING_GOOD, "socket");
    CHECK_STR_EQ(redis_say(server(r), "DBSIZE", NULL), "0");
}

TEST(redis_examine, a_common_server_is_good_and_left_as_it_was)
{
    contract_run(&rig_redis, common_server);
}

static void bad_server(struct rig *r)
{
    set(r, "maxmemory-policy", "allkeys-lru");
    check_finding(examine(r, 0), "eviction", VOW_FINDING_WARN, "allkeys-lru");
    set(r, "maxmemory", "100mb");
    check_finding(examine(r, 0), "eviction", VOW_FINDING_BAD, "allkeys-lru");
    check_finding(examine(r, 0), "memory", VOW_FINDING_GOOD, "of 100.0 MB");
    set(r, "maxmemory-policy", "noeviction");
    set(r, "maxmemory", "1");
    check_finding(examine(r, 0), "memory", VOW_FINDING_BAD, "of 0.0 MB");
    check_finding(examine(r, 0), "writes", VOW_FINDING_BAD, "OOM");
    set(r, "maxmemory", "0");
    set(r, "save", "3600 1");
    check_finding(examine(r, 0), "disk", VOW_FINDING_WARN, "save 3600 1");
    set(r, "appendonly", "yes");
    check_finding(examine(r, 0), "disk", VOW_FINDING_GOOD, "last second");
    set(r, "appendfsync", "always");
    check_finding(examine(r, 0), "disk", VOW_FINDING_GOOD, "before");
    set(r, "appendfsync", "no");
    check_finding(examine(r, 0), "disk", VOW_FINDING_WARN, "appendfsync no");
}

TEST(redis_examine, names_what_is_set_wrong)
{
    contract_run(&rig_redis, bad_server);
}

/* The store of instance 1 gives up after two seconds, not after a minute. */
static void server_ends(struct rig *r)
{
    VOW_AUTO(vow_future)
    opened = vow_store_redis_open(r->world.loop, server(r)->url,
                                  VOW_REDIS_OPTS(.timeout_ms = 2000));
    rig_close(r, 1);
    r->at[1] = vow_as_ptr(vow_get(opened));
    (void)examine(r, 0);
    redis_kill(server(r));
    CHECK_INT_EQ(examine(r, 1)->code, VOW_ESTORE);
    CHECK(strlen(r->at[1]->ops->explain(r->at[1])) > 10);
}

TEST(redis_examine, a_server_that_is_down_is_told_by_a_code_and_a_sentence)
{
    contract_run(&rig_redis, server_ends);
}

static void with_replica(struct rig *r)
{
    static struct redis_server replica;
    char port[8];
    redis_start(&replica, NULL);
    snprintf(port, sizeof(port), "%u", server(r)->port);
    CHECK_STR_EQ(redis_say(&replica, "REPLICAOF", "127.0.0.1", port, NULL),
                 "OK");
    redis_until(&replica, "master_link_status:up", "INFO", "replication", NULL);
    redis_until(server(r), "connected_slaves:1", "INFO", "replication", NULL);
    check_finding(examine(r, 0), "replicas", VOW_FINDING_WARN,
                  "min-replicas-to-write is 0");
    set(r, "min-replicas-to-write", "1");
    check_finding(examine(r, 0), "replicas", VOW_FINDING_GOOD, "1, and");
    redis_stop(&replica);
    redis_until(server(r), "connected_slaves:0", "INFO", "replication", NULL);
    check_finding(examine(r, 0), "writes", VOW_FINDING_BAD, "NOREPLICAS");
}

TEST(redis_examine, replicas_without_which_it_writes_are_a_risk)
{
    contract_run(&rig_redis, with_replica);
}

static void all_masters(struct rig *r)
{
    const struct redis_cluster *c = r->state;
    const struct findings *f = examine(r, 0);
    CHECK_INT_EQ(f->code, 0);
    for (size_t i = 0; i < REDIS_NODES; i++) {
        char port[16];
        unsigned seen = 0;
        snprintf(port, sizeof(port), "port %u: ", c->nodes[i].port);
        for (size_t k = 0; k < f->n; k++)
            seen += strstr(f->at[k].text, port) != NULL;
        CHECK_UINT_EQ(seen, 7);
    }
    check_finding(f, "server", VOW_FINDING_GOOD, "cluster, master");
    check_finding(f, "rights", VOW_FINDING_GOOD, "all");
    check_finding(f, "password", VOW_FINDING_WARN, "none");
}

TEST(redis_examine, looks_at_all_masters_of_a_cluster)
{
    contract_run(&rig_redis_cluster, all_masters);
}

/* ---- rights -------------------------------------------------------------- */

/* Word by word, which ends connections of the user. */
static void give_rights(struct redis_server *s, const char *rights,
                        const char *more)
{
    char all[2048];
    char *rest = NULL;
    snprintf(all, sizeof(all), "reset on >secret %s %s", rights, more);
    for (char *at = strtok_r(all, " ", &rest); at != NULL;
         at = strtok_r(NULL, " ", &rest))
        CHECK_STR_EQ(redis_say(s, "ACL", "SETUSER", "app", at, NULL), "OK");
}

static vow_store *open_as_app(struct rig *r)
{
    VOW_AUTO(vow_future)
    opened = vow_store_redis_open(
        r->world.loop, server(r)->url,
        VOW_REDIS_OPTS(.value_max = RIG_VALUE_MAX, .timeout_ms = 60000,
                       .user = "app", .password = "secret"));
    CHECK_INT_EQ(vow_state_of(opened), VOW_FULFILLED);
    return vow_as_ptr(vow_get(opened));
}

static const struct rig_store *as_app(void)
{
    static struct rig_store s;
    s = rig_redis;
    s.open = open_as_app;
    return &s;
}

static void become_app(struct rig *r, size_t i)
{
    const struct rig_store *before = r->store;
    r->store = as_app();
    rig_close(r, i);
    rig_reopen(r, i);
    r->store = before;
}

/* All steps there are. */
static void enough(struct rig *r)
{
    vow_pool_limits limits = {.concurrent = 1, .rate = 1, .window_us = 1000};
    struct rig_answer list[8];
    give_rights(server(r), RIGHTS, "");
    become_app(r, 0);
    become_app(r, 1);
    vow_hold hold = {.name = rig_name("a"), .token = rig_token(1), .epoch = 0};
    hold.epoch = rig_claim(r, 0, ASK("a", 1, .label = "a")).epoch;
    CHECK_UINT_EQ(rig_claim(r, 1, ASK("a", 2)).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(rig_write(r, 0, &hold, 0, "chunk").status, VOW_STATUS_OWNED);
    rig_expect(r, &r->news[1].chunks, 1);
    CHECK_STR_EQ(rig_read(r, 1, "a", hold.epoch, 0).text, "chunk|");
    CHECK_UINT_EQ(rig_cancel(r, 1, "a").status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(rig_pulse(r, 0, &hold, LONG_MS).status, VOW_STATUS_CANCELED);
    CHECK_UINT_EQ(
        rig_commit(r, 0, COMMIT("a", 1, hold.epoch, .ttl_ms = 0), "x").status,
        VOW_STATUS_OWNED);
    rig_expect(r, &r->news[1].records, 1);
    hold.epoch = rig_claim(r, 0, ASK("a", 3)).epoch;
    CHECK_UINT_EQ(rig_commit(r, 0, COMMIT("a", 3, hold.epoch), "x").status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(rig_list(r, 0, list, 8), 1);
    CHECK_UINT_EQ(rig_peek(r, 0, "a").status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(rig_forget(r, 0, "a", 0).status, VOW_STATUS_NONE);
    CHECK_INT_EQ(rig_limit(r, 0, "p", &limits).code, 0);
    for (uint64_t i = 0; i < 3; i++)
        CHECK_INT_EQ(rig_acquire(r, 0, PLACE("p:a", i, .weight = 1)).code, 0);
    CHECK_INT_EQ(rig_renew(r, 0, "p:a", 2, LONG_MS).code, 0);
    CHECK_INT_EQ(rig_release(r, 0, "p:a", 1).code, 0);
    CHECK_UINT_EQ(rig_pools(r, 0, NULL, 0), 2);
    check_finding(examine(r, 0), "rights", VOW_FINDING_GOOD, "all");
}

TEST(redis_examine, the_rights_that_are_told_are_enough_for_all_steps)
{
    contract_run(&rig_redis, enough);
}

static void not_seen(struct rig *r)
{
    give_rights(server(r), RIGHTS, "");
    become_app(r, 0);
    const struct findings *f = examine(r, 0);
    check_finding(f, "server", VOW_FINDING_GOOD, "version ");
    check_finding(f, "eviction", VOW_FINDING_WARN, "not allowed to see");
    check_finding(f, "memory", VOW_FINDING_WARN, "not allowed to see");
    check_finding(f, "disk", VOW_FINDING_WARN, "not allowed to see");
    check_finding(f, "replicas", VOW_FINDING_WARN, "not allowed to see");
    check_finding(f, "password", VOW_FINDING_GOOD, "user app");
    check_finding(f, "encryption", VOW_FINDING_GOOD, "this machine");
    give_rights(server(r), RIGHTS, "+info");
    become_app(r, 0);
    f = examine(r, 0);
    check_finding(f, "eviction", VOW_FINDING_GOOD, "noeviction");
    check_finding(f, "disk", VOW_FINDING_WARN, "appendonly is off");
}

TEST(redis_examine, says_what_it_is_not_allowed_to_see)
{
    contract_run(&rig_redis, not_seen);
}

static bool is_among(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = words; (at = strstr(at, word)) != NULL; at += n)
        if (at > words && at[-1] == ' ' && (at[n] == ',' || at[n] == 0))
            return true;
    return false;
}

/* Each word behind call(' in the scripts must be missed when it is not
 * allowed: so the doctor tries all of them. */
static void all_are_tried(struct rig *r)
{
    give_rights(server(r), "-@all ~vow:* &vow:i:* +role +eval +subscribe +time",
                "");
    become_app(r, 0);
    const struct findings *f = examine(r, 0);
    check_finding(f, "rights", VOW_FINDING_BAD, "EVALSHA");
    const char *refused = NULL;
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->at[i].what, "rights") == 0)
            refused = f->at[i].text;
    unsigned seen = 0;
    for (size_t i = 0; i < VOW__LUA_N; i++) {
        const char *at = vow__redis_scripts[i].text;
        while ((at = strstr(at, "call('")) != NULL) {
            char word[32];
            size_t n = 0;
            for (at += 6; isupper((unsigned char)*at); at++)
                word[n++] = *at;
            word[n] = 0;
            CHECK(n > 0);
            if (strcmp(word, "TIME") != 0 && !is_among(refused, word))
                FAIL("%s of %s.lua is not tried", word,
                     vow__redis_scripts[i].name);
            seen++;
        }
    }
    CHECK(seen > 50);
}

TEST(redis_examine, tries_every_command_of_the_scripts)
{
    contract_run(&rig_redis, all_are_tried);
}

static void one_is_missing(struct rig *r)
{
    give_rights(server(r), RIGHTS, "-zadd");
    become_app(r, 0);
    check_finding(examine(r, 0), "rights", VOW_FINDING_BAD, "refused: ZADD");
    give_rights(server(r), RIGHTS, "-scan");
    become_app(r, 0);
    check_finding(examine(r, 0), "rights", VOW_FINDING_WARN, "refused: SCAN");
}

TEST(redis_examine, names_the_right_that_is_missing)
{
    contract_run(&rig_redis, one_is_missing);
}

/* ---- in a cluster -------------------------------------------------------- */

static vow_store *open_cluster_as_app(struct rig *r)
{
    const struct redis_cluster *c = r->state;
    VOW_AUTO(vow_future)
    opened = vow_store_redis_open(
        r->world.loop, c->url,
        VOW_REDIS_OPTS(.value_max = RIG_VALUE_MAX, .timeout_ms = 60000,
                       .user = "app", .password = "secret"));
    CHECK_INT_EQ(vow_state_of(opened), VOW_FULFILLED);
    return vow_as_ptr(vow_get(opened));
}

static void cluster_with_users(struct rig *r)
{
    struct redis_cluster *c;
    rig_redis_cluster.begin(r);
    c = r->state;
    for (size_t i = 0; i < REDIS_NODES; i++)
        give_rights(&c->nodes[i], RIGHTS, "+cluster|slots +asking");
}

static void enough_in_a_cluster(struct rig *r)
{
    char name[16];
    for (uint64_t i = 0; i < 20; i++) {
        snprintf(name, sizeof(name), "%llu", (unsigned long long)i);
        CHECK_UINT_EQ(rig_claim(r, 0, ASK(name, i)).status, VOW_STATUS_OWNED);
        CHECK_UINT_EQ(rig_acquire(r, 0, PLACE(name, i)).place.status,
                      VOW_STATUS_OWNED);
    }
    CHECK_UINT_EQ(rig_list(r, 0, NULL, 0), 20);
    CHECK_UINT_EQ(rig_pools(r, 0, NULL, 0), 20);
    check_finding(examine(r, 0), "rights", VOW_FINDING_GOOD, "all");
}

TEST(redis_examine, the_rights_that_are_told_are_enough_in_a_cluster)
{
    struct rig_store kind = rig_redis_cluster;
    kind.begin = cluster_with_users;
    kind.open = open_cluster_as_app;
    contract_run(&kind, enough_in_a_cluster);
}
