/* SPDX-License-Identifier: MIT */
/* redis.h - the cases of redis.c, each prints its rows, and what they have in
 * common. */
#ifndef VOW_BENCH_REDIS_H
#define VOW_BENCH_REDIS_H

#include "ours.h"
#include "process.h"
#include <stdatomic.h>
#include <vow.h>

/* The same counts in every program and every language. */
enum {
    LOCKS = 3000,  /* one at a time */
    CROWD = 64,    /* at once, each with a name of its own */
    MANY = 12800,  /* in such crowds */
    JOBS = 2000,   /* one at a time */
    QUEUED = 1000, /* asked for at once, of which */
    PLACES = 16    /* may run */
};

/* The socket of the server that redis.py has started for us. */
const char *server_socket(void);
/* Its address as a store. */
const char *server_url(void);

vow_store *open_store(vow_loop *loop);
void close_store(vow_loop *loop, vow_store *store);
/* `flags` of vow_authority_opts; `on_event` may be NULL. */
vow_authority *open_authority(vow_loop *loop, uint32_t flags,
                              vow_event_fn on_event, void *user);
void close_authority(vow_loop *loop, vow_authority *a);

vow_name name_of_number(const char *kind, long number);

/* redis_claim.c: beside redis-benchmark, a bare round trip, many records */
void bench_claim(void);
void bench_claim_one(void);
void bench_records(void);

/* redis_wake.c: between processes */
void bench_wake(void);
void bench_hot(void);

/* redis_run.c: what runs costs the server, and what the peers do, too */
void bench_pulse(void);
void bench_lock(void);
void bench_job(void);

/* peers/redis.c: a connection that blocks, as anybody would write it. */
struct bare;
struct bare *bare_open(const char *path);
void bare_close(struct bare *b);
/* Words until NULL. */
void bare_send(struct bare *b, const char *const *words);
/* The next answer, or push, whole; NULL: none of its parts has text. Borrowed
 * until the next call: the last text in it. */
const char *bare_read(struct bare *b);
/* Both. */
const char *bare_ask(struct bare *b, const char *const *words);
#define ASK(b, ...) bare_ask((b), (const char *const[]){__VA_ARGS__, NULL})
/* Calls of scripts so far, and seconds of work of the server. */
double bare_scripts(struct bare *b);
double bare_cpu_s(struct bare *b);
/* The script that claims a name, loaded: its digest. */
void bare_load_claim(struct bare *b, char sha[41]);
/* The number behind a word of a text; 0 if it is not there. */
double number_behind(const char *text, const char *word);

#endif
