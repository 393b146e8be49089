/* SPDX-License-Identifier: MIT */
/* redis_fake.h - a server that says what a test wants, on the test's own
 * thread: it serves while the test waits, so nothing depends on time.
 *
 *     struct fake f;
 *     fake_open(&f);
 *     f.answer = my_answer;      // to what is not the greeting
 *     ... connect a link to 127.0.0.1, f.port ...
 *     FAKE_UNTIL(&w, &f, ready);
 *     fake_close(&f);
 *
 * The world may have virtual time, which stands meanwhile.
 */
#ifndef TEST_REDIS_FAKE_H
#define TEST_REDIS_FAKE_H

#include "world.h"

enum { FAKE_CONNS = 16, FAKE_WORDS = 64, FAKE_BYTES = 1024 * 1024 };

struct fake;
struct fake_conn {
    struct fake *fake;
    int fd; /* -1: none */
    char *in, *out;
    size_t in_n, out_n;
    unsigned commands; /* behind the greeting */
    bool ends;         /* when all was said */
};

/* The answer in RESP, or NULL: that of the greeting, or "+OK". "" is silence.
 * Borrowed. */
typedef const char *(*fake_fn)(struct fake_conn *c, char **words, size_t n);

struct fake {
    int fd; /* -1: it does not listen */
    uint16_t port;
    struct fake_conn conns[FAKE_CONNS];
    unsigned accepted;
    unsigned served;  /* connections that were greeted */
    size_t cut;       /* bytes that are sent at once; 0: all */
    const char *mode; /* NULL: "standalone" */
    const char *role; /* the answer to ROLE; NULL: a master's */
    fake_fn answer;
    void *user;
    char log[4096]; /* the first word of each command, and a blank */
};

void fake_open(struct fake *f);
void fake_close(struct fake *f);
/* Connections are refused from now on; are taken again, at the same port. */
void fake_deaf(struct fake *f);
void fake_again(struct fake *f);
/* Hang up on all. */
void fake_hang_up(struct fake *f);
/* Say this to a connection, now. */
void fake_say(struct fake_conn *c, const char *resp);
/* The newest connection that is open, or NULL. */
struct fake_conn *fake_last(struct fake *f);

/* Take and answer what is there. False: there was nothing. */
bool fake_serve(struct fake *f);
/* One turn of the loop, without waiting. */
void fake_turn(struct world *w);
/* Both, and a short nap if there was nothing to do. */
void fake_step(struct world *w, struct fake *f);

/* Serve and turn until this holds; the test's own time limit ends it. */
#define FAKE_UNTIL(w, f, cond)                                                 \
    do {                                                                       \
        while (!(cond))                                                        \
            fake_step((w), (f));                                               \
    } while (0)
/* Serve and turn for as long as something is going on. */
void fake_settle(struct world *w, struct fake *f);

#endif
