/* SPDX-License-Identifier: MIT */
/* redis_link.h - the inside of a connection: redis_link.c and redis_greet.c. */
#ifndef VOW_STORE_REDIS_LINK_H
#define VOW_STORE_REDIS_LINK_H

#include "store/redis/redis_internal.h"

enum { VOW__SERVER_NAME = 280 };

/* What the greeting waits for, in order. */
enum vow__greet {
    VOW__GREET_HELLO,
    VOW__GREET_SELECT,
    VOW__GREET_ROLE,
    VOW__GREET_EVAL,
    VOW__GREET_SUBSCRIBE,
    VOW__GREET_DONE
};

struct vow__link {
    vow_loop *loop;
    struct vow_alloc alloc;
    struct vow__link_events events;
    struct vow__stream *stream; /* NULL: ended */
    struct vow__parser *parser;
    const struct vow__redis_script *scripts;
    uint8_t state;
    bool closed;                 /* nobody wants to hear of it */
    unsigned inside;             /* our functions on the stack that call out */
    char name[VOW__SERVER_NAME]; /* of the server, for people */
    char user[64];               /* cut, for people */
    char why[VOW__REDIS_WHY];

    /* the greeting */
    enum vow__greet greet;
    bool bare, selects, subscribes, has_password;
    const char *prefix;       /* of all keys, borrowed */
    struct vow__buf greeting; /* until it is sent */
    struct vow__greeting server;

    /* commands */
    vow_link *waiting; /* struct sent, the oldest first */
    vow_link *spare;
    size_t n_spare;
    size_t asked; /* of those that wait, by others than us */
    size_t busy;  /* bytes of those that wait */
    struct vow__buf scratch;
    bool asking; /* the next is sent behind ASKING */
    bool role_asked;
    size_t value_bytes; /* of an answer that has a result or chunks in it */

    /* silence */
    uint64_t timeout_ms, pulse_ms;
    uint64_t last_ns; /* an answer came, or was awaited from then on */
    bool moved;       /* answers came with these bytes */
    uint64_t due_ns;  /* of `silence` */
    vow_call silence, pulse, broken;
};

/* End it: what waits is VOW_EUNSURE, then on_end. */
void vow__link_fail(struct vow__link *l, bool for_good, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The greeting is over: it is ready. */
void vow__link_greeted(struct vow__link *l);

/* redis_greet.c: all that is sent first, and each answer to it. */
int vow__greet_make(struct vow__link *l, const struct vow__link_opts *opts);
void vow__greet_take(struct vow__link *l, const struct vow__resp *v);

#endif
