/* SPDX-License-Identifier: MIT */
/* named.h - the cases of named.c, each prints its rows, and what they have in
 * common. */
#ifndef VOW_BENCH_COLLAB_H
#define VOW_BENCH_COLLAB_H

#include "bench.h"
#include "ours.h"
#include "process.h"
#include <stdatomic.h>
#include <sys/types.h>
#include <vow.h>

/* The same counts in every program and every language. */
enum {
    ASKERS = 1000,   /* of one name at once */
    ASKS = 1000000,  /* of one name, or of so many */
    WARMUP = 100000, /* asks before those that count */
    NAMES = 1000000  /* made from texts */
};

/* A folder of its own for this run, removed at the end of the program. */
const char *new_folder(void);

/* An authority on a store in that folder. Without flags the authority has a
 * thread of its own, the default of every program. */
vow_authority *open_authority(vow_loop *loop, const char *in, uint32_t flags,
                              vow_event_fn on_event, void *user);
void close_authority(vow_loop *loop, vow_authority *a);

/* named_share.c */
void bench_share_hot(void);
void bench_share_one(void);
void bench_share_many(void);
void bench_share_kept(void);
void bench_name(void);

/* named_claim.c: in the store of a folder, beside bare SQLite */
void bench_claim(void);
void bench_records(void);
void bench_fair(void);

/* named_wake.c: between processes */
void bench_wake(void);
void bench_takeover(void);

/* named_floor.c: the least of a wake-up, one side of it. Both sides register a
 * name before each round. */
struct wake_floor;
struct wake_floor *floor_open(const char *folder, int end, bool sends,
                              long rounds, bool threads);
void floor_register(struct wake_floor *f, const vow_name *name);
void floor_send(struct wake_floor *f);
void floor_receive(struct wake_floor *f);
void floor_close(struct wake_floor *f);

/* peers/sqlite.c: one transaction each, as anybody would write it. A name is
 * claimed when its row was not there, and settled by its owner. */
struct bare;
struct bare *bare_open(const char *folder);
void bare_claim(struct bare *b, const vow_name *name, const vow_token *owner);
void bare_commit(struct bare *b, const vow_name *name, const vow_token *owner,
                 vow_bytes *value);
void bare_close(struct bare *b);

#endif
