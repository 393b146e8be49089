/* SPDX-License-Identifier: MIT */
/* The store on a real server that is restarted, cut off, stopped, full, not the
 * master, or does not let us in. */
#include "redis_line.h"
#include "redis_server_rig.h"
#include "store/redis/redis_internal.h"

#include <signal.h>
#include <unistd.h>

/* ---- rights -------------------------------------------------------------- */

/* What vow-store(7) lists. */
static const char *const rights[] = {"on",
                                     ">secret",
                                     "~vow:*",
                                     "&vow:i:*",
                                     "-@all",
                                     "+evalsha",
                                     "+eval",
                                     "+role",
                                     "+subscribe",
                                     "+scan",
                                     "+time",
                                     "+publish",
                                     "+get",
                                     "+set",
                                     "+del",
                                     "+exists",
                                     "+pexpire",
                                     "+pexpireat",
                                     "+persist",
                                     "+pttl",
                                     "+hget",
                                     "+hmget",
                                     "+hgetall",
                                     "+hkeys",
                                     "+hlen",
                                     "+hset",
                                     "+hdel",
                                     "+hexists",
                                     "+hincrby",
                                     "+rpush",
                                     "+lrange",
                                     "+llen",
                                     "+zadd",
                                     "+zcard",
                                     "+zrange",
                                     "+zrank",
                                     "+zrem",
                                     "+zscore",
                                     "+zrangebylex",
                                     "+zrangebyscore",
                                     "+zremrangebyscore",
                                     NULL};

#define FINE(r, i, answer)                                                     \
    ((answer).code == 0 ? (void)0 : FAIL("%s: %s", #answer, WHY(r, i)))

static void every_name_step(struct rig *r)
{
    struct rig_answer a = rig_claim(r, 0, ASK("a", 1));
    FINE(r, 0, a);
    CHECK_INT_EQ(rig_claim(r, 1, ASK("a", 2)).status, VOW_STATUS_WAITING);
    vow_hold hold = {
        .name = rig_name("a"), .token = rig_token(1), .epoch = a.epoch};
    FINE(r, 0, rig_pulse(r, 0, &hold, LONG_MS));
    FINE(r, 0, rig_peek(r, 0, "a"));
    FINE(r, 1, rig_cancel(r, 1, "a"));
    FINE(r, 0, rig_write(r, 0, &hold, 0, "x"));
    FINE(r, 1, rig_read(r, 1, "a", a.epoch, 0));
    FINE(r, 0, rig_commit(r, 0, COMMIT("a", 1, a.epoch), "v"));
    rig_expect(r, &r->news[1].records, 1);
    struct rig_answer list[4];
    CHECK_UINT_EQ(rig_list(r, 0, list, 4), 1);
    FINE(r, 0, rig_forget(r, 0, "a", 0));
}

static void every_place_step(struct rig *r)
{
    const vow_pool_limits limits = {
        .concurrent = 1, .rate = 2, .window_us = 50000};
    FINE(r, 0, rig_limit(r, 0, "p", &limits));
    FINE(r, 0, rig_acquire(r, 0, PLACE("p", 1)));
    FINE(r, 1, rig_acquire(r, 1, PLACE("p", 2)));
    FINE(r, 1, rig_acquire(r, 1, PLACE("p:k", 3)));
    FINE(r, 0, rig_renew(r, 0, "p", 1, LONG_MS));
    FINE(r, 0, rig_release(r, 0, "p", 1));
    rig_expect(r, &r->news[1].places, 1);
    struct rig_pool pools[4];
    CHECK(rig_pools(r, 0, pools, 4) >= 1);
    FINE(r, 0, rig_limit(r, 0, "p", NULL));
}

HURT(redis_server, the_rights_that_are_listed_are_enough, .acl = rights,
     .url_format = "redis://vow@127.0.0.1:%u", .password = "secret")
{
    (void)s;
    every_name_step(r);
    every_place_step(r);
}

/* Claims fail, sooner or later with this reason. */
static void fails_until_told(struct rig *r, const char *part)
{
    do {
        rig_advance_ms(r, 20);
        int code = rig_claim(r, 0, ASK("b", 1)).code;
        CHECK(code == VOW_ESTORE || code == VOW_EUNSURE);
    } while (strstr(WHY(r, 0), part) == NULL);
}

HURT(redis_server, a_right_that_is_missing_is_named, .acl = rights,
     .url_format = "redis://vow@127.0.0.1:%u", .password = "secret")
{
    CHECK_INT_EQ(rig_claim(r, 0, ASK("a", 1)).code, 0);
    CHECK_STR_EQ(redis_say(s, "ACL", "SETUSER", "vow", "-hset", NULL), "OK");
    CHECK_INT_EQ(rig_claim(r, 0, ASK("b", 1)).code, VOW_ESTORE);
    CHECK_HAS(WHY(r, 0), "needs more rights");
    CHECK_HAS(WHY(r, 0), "can't run this command");
    CHECK_STR_EQ(redis_say(s, "ACL", "SETUSER", "vow", "+hset", "-role", NULL),
                 "OK");
    CHECK(atoi(redis_say(s, "CLIENT", "KILL", "USER", "vow", NULL)) >= 5);
    fails_until_told(r, "'role'");
    CHECK_HAS(WHY(r, 0), "needs more rights");
    CHECK_STR_EQ(
        redis_say(s, "ACL", "SETUSER", "vow", "+role", "resetchannels", NULL),
        "OK");
    fails_until_told(r, "channel");
}

HURT(redis_server, a_wrong_password_is_told_but_not_shown, .acl = rights,
     .url_format = "redis://vow:wrong-secret@127.0.0.1:%u")
{
    (void)s;
    CHECK_INT_EQ(rig_claim(r, 0, ASK("a", 1)).code, VOW_ESTORE);
    CHECK_HAS(WHY(r, 0), "does not know user vow with this password");
    CHECK(strstr(WHY(r, 0), "wrong-secret") == NULL);
}

static const char *const wants_password[] = {"--requirepass", "secret", NULL};

HURT(redis_server, a_password_that_is_wanted_is_told, .args = wants_password)
{
    (void)s;
    CHECK_INT_EQ(rig_claim(r, 0, ASK("a", 1)).code, VOW_ESTORE);
    CHECK_HAS(WHY(r, 0), "wants a password");
}

HURT(redis_server, a_password_without_a_user_is_the_default_users,
     .args = wants_password, .password = "secret")
{
    (void)s;
    CHECK_INT_EQ(rig_claim(r, 0, ASK("a", 1)).code, 0);
}

static const char *const is_old[] = {"--rename-command", "HELLO", "", NULL};

HURT(redis_server, an_old_server_is_told_the_version_it_lacks, .args = is_old,
     .url_format = "redis://vow:secret@127.0.0.1:%u")
{
    (void)s;
    CHECK_INT_EQ(rig_claim(r, 0, ASK("a", 1)).code, VOW_ESTORE);
    CHECK_HAS(WHY(r, 0), "version 6.0 or newer is needed");
    CHECK(strstr(WHY(r, 0), "secret") == NULL);
}

HURT(redis_server, a_database_that_is_none_is_told,
     .url_format = "redis://127.0.0.1:%u/99")
{
    (void)s;
    CHECK_INT_EQ(rig_claim(r, 0, ASK("a", 1)).code, VOW_ESTORE);
    CHECK_HAS(WHY(r, 0), "fewer databases");
}

HURT(redis_server, another_database_is_apart,
     .url_format = "redis://127.0.0.1:%u/3")
{
    CHECK_INT_EQ(rig_claim(r, 0, ASK("a", 1)).status, VOW_STATUS_OWNED);
    CHECK_INT_EQ(rig_claim(r, 1, ASK("a", 2)).status, VOW_STATUS_WAITING);
    CHECK_STR_EQ(redis_say(s, "DBSIZE", NULL), "0");
}

/* ---- what happens to it -------------------------------------------------- */

HURT(redis_server, a_restart_is_hardly_seen)
{
    struct rig_answer a = rig_claim(r, 0, ASK("a", 1));
    CHECK_INT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_INT_EQ(rig_claim(r, 1, ASK("a", 2)).status, VOW_STATUS_WAITING);
    unsigned doubts = r->news[1].doubts;
    redis_again(s); /* all is forgotten */
    struct rig_answer b = claim_at_last(r, 2, ASK("a", 3));
    CHECK_INT_EQ(b.status, VOW_STATUS_OWNED);
    CHECK(b.epoch > a.epoch);
    rig_expect(r, &r->news[1].doubts, doubts + 1);
}

HURT(redis_server, connections_that_are_killed_are_made_again)
{
    static const char *const types[] = {"normal", "pubsub"};
    CHECK_INT_EQ(rig_claim(r, 0, ASK("a", 1)).status, VOW_STATUS_OWNED);
    for (unsigned i = 0; i < 6; i++) {
        unsigned doubts = r->news[0].doubts;
        CHECK(redis_say(s, "CLIENT", "KILL", "TYPE", types[i % 2], "SKIPME",
                        "yes", NULL)[0] != '-');
        struct rig_answer a = rig_claim(r, 0, ASK("a", 1));
        CHECK(a.code == 0 || a.code == VOW_EUNSURE);
        rig_expect(r, &r->news[0].doubts, i % 2 == 1 ? doubts + 1 : doubts);
        CHECK_INT_EQ(claim_at_last(r, 0, ASK("a", 1)).status, VOW_STATUS_OWNED);
    }
}

HURT(redis_server, who_waits_hears_it_behind_a_lost_connection)
{
    struct rig_answer a = rig_claim(r, 0, ASK("a", 1));
    CHECK_INT_EQ(rig_claim(r, 1, ASK("a", 2)).status, VOW_STATUS_WAITING);
    unsigned doubts = r->news[1].doubts;
    CHECK(redis_say(s, "CLIENT", "KILL", "TYPE", "pubsub", NULL)[0] != '-');
    rig_expect(r, &r->news[1].doubts, doubts + 1);
    CHECK_INT_EQ(claim_at_last(r, 1, ASK("a", 2)).status, VOW_STATUS_WAITING);
    CHECK_INT_EQ(rig_commit(r, 0, COMMIT("a", 1, a.epoch), "v").status,
                 VOW_STATUS_OWNED);
    rig_expect(r, &r->news[1].records, 1);
    CHECK_INT_EQ(r->news[1].status, VOW_STATUS_SETTLED);
}

HURT(redis_server, a_short_pause_is_waited_for)
{
    CHECK_INT_EQ(rig_claim(r, 0, ASK("a", 1)).code, 0);
    CHECK_STR_EQ(redis_say(s, "CLIENT", "PAUSE", "400", NULL), "OK");
    CHECK_INT_EQ(rig_claim(r, 0, ASK("b", 1)).code, 0);
}

HURT(redis_server, a_long_pause_is_unsure_and_then_over, .timeout_ms = 1000)
{
    (void)claim_at_last(r, 0, ASK("a", 1));
    CHECK(kill(s->pid, SIGSTOP) == 0);
    CHECK_INT_EQ(rig_claim(r, 0, ASK("b", 1)).code, VOW_EUNSURE);
    CHECK_HAS(WHY(r, 0), "did not answer for 1000 ms");
    CHECK(kill(s->pid, SIGCONT) == 0);
    CHECK_INT_EQ(claim_at_last(r, 0, ASK("b", 1)).status, VOW_STATUS_OWNED);
}

/* On a busy machine the sleep may be over, or not begun. */
HURT(redis_server, a_server_that_sleeps_is_left_and_found_again,
     .timeout_ms = 1000)
{
    (void)claim_at_last(r, 0, ASK("a", 1));
    int fd = redis_connect(s->port);
    CHECK(write(fd, "DEBUG SLEEP 2\r\n", 15) == 15);
    rig_advance_ms(r, 20);
    int code = rig_claim(r, 0, ASK("b", 1)).code;
    CHECK(code == VOW_EUNSURE || code == 0);
    CHECK_INT_EQ(claim_at_last(r, 0, ASK("b", 1)).status, VOW_STATUS_OWNED);
    close(fd);
}

/* Else each call would be sent twice, and nobody would notice. */
HURT(redis_server, scripts_have_the_hashes_that_they_are_called_by)
{
    struct redis_line l;
    redis_line_open(&l, s);
    for (size_t i = 0; i < VOW__LUA_N; i++) {
        struct vow__buf *c = redis_line_begin(&l, 3);
        vow__command_text(c, "SCRIPT");
        vow__command_text(c, "LOAD");
        vow__command_text(c, vow__redis_scripts[i].text);
        CHECK(vow__resp_is(redis_line_ask(&l), vow__redis_scripts[i].sha));
    }
    redis_line_close(&l);
    (void)r;
}

HURT(redis_server, lost_scripts_are_not_seen)
{
    for (uint64_t i = 0; i < 5; i++) {
        CHECK_STR_EQ(redis_say(s, "SCRIPT", "FLUSH", NULL), "OK");
        every_name_step(r);
        r->news[1] = (struct rig_news){.records = 0};
    }
}

HURT(redis_server, a_full_server_is_told_and_can_be_mended)
{
    CHECK_INT_EQ(rig_claim(r, 0, ASK("a", 1)).code, 0);
    CHECK_STR_EQ(redis_say(s, "CONFIG", "SET", "maxmemory", "1", NULL), "OK");
    CHECK_INT_EQ(rig_claim(r, 0, ASK("b", 1)).code, VOW_ESTORE);
    CHECK_HAS(WHY(r, 0), "its maxmemory is reached");
    CHECK_STR_EQ(redis_say(s, "CONFIG", "SET", "maxmemory", "0", NULL), "OK");
    CHECK_INT_EQ(rig_claim(r, 0, ASK("b", 1)).status, VOW_STATUS_OWNED);
}

HURT(redis_server, too_few_replicas_are_told)
{
    CHECK_INT_EQ(rig_claim(r, 0, ASK("a", 1)).code, 0);
    CHECK_STR_EQ(
        redis_say(s, "CONFIG", "SET", "min-replicas-to-write", "1", NULL),
        "OK");
    CHECK_INT_EQ(rig_claim(r, 0, ASK("b", 1)).code, VOW_ESTORE);
    CHECK_HAS(WHY(r, 0), "min-replicas-to-write");
}

HURT(redis_server, a_master_that_becomes_a_replica_is_left, .timeout_ms = 1000)
{
    (void)claim_at_last(r, 0, ASK("a", 1));
    CHECK_STR_EQ(redis_say(s, "REPLICAOF", "127.0.0.1", "1", NULL), "OK");
    fails_until_told(r, "is a replica; its master is 127.0.0.1:1");
    CHECK_STR_EQ(redis_say(s, "REPLICAOF", "NO", "ONE", NULL), "OK");
    CHECK_INT_EQ(claim_at_last(r, 0, ASK("b", 1)).status, VOW_STATUS_OWNED);
}

static void on_claimed(int code, const vow_record *records, size_t n,
                       void *user)
{
    int *ret_code = user;
    (void)records;
    (void)n;
    *ret_code = code;
}

HURT(redis_server, a_server_that_is_gone_costs_no_time, .timeout_ms = 1000)
{
    (void)claim_at_last(r, 0, ASK("a", 1));
    redis_kill(s);
    fails_until_told(r, "refused");
    rig_advance_ms(r, 1200);
    CHECK_INT_EQ(rig_claim(r, 0, ASK("b", 1)).code, VOW_ESTORE);
    for (int i = 0; i < 50; i++) {
        int code = 0;
        r->at[0]->ops->claim(r->at[0], ASK("b", 1), on_claimed, &code);
        CHECK_INT_EQ(code, VOW_ESTORE); /* before it returned */
    }
    CHECK_HAS(WHY(r, 0), "refused");
    redis_again(s);
    CHECK_INT_EQ(claim_at_last(r, 0, ASK("b", 1)).status, VOW_STATUS_OWNED);
}

HURT(redis_server, closing_while_it_is_paused_ends, .timeout_ms = 5000)
{
    CHECK_INT_EQ(rig_claim(r, 0, ASK("a", 1)).code, 0);
    CHECK_INT_EQ(
        rig_acquire(r, 0, PLACE("p", 1, .limits = {.concurrent = 1})).code, 0);
    CHECK_STR_EQ(redis_say(s, "CLIENT", "PAUSE", "1000000", NULL), "OK");
    rig_close(r, 0); /* its place cannot be given back */
}
