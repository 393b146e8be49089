/* SPDX-License-Identifier: MIT */
/* named_floor.c - the least that a wake-up of a process by a file can be: the
 * other process has written to the file since, one transaction of one statement
 * by bare SQLite, one datagram; and with threads, one wake-up of a thread on
 * either side. Nothing else is on the way.
 */
#include "named.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LETTER = 112 }; /* bytes, as ours is */

struct wake_floor {
    struct bare *bare;
    long rounds;
    int end;  /* of a pair of datagram sockets */
    int bell; /* between the thread and the caller; -1: no thread */
    vow_name name;
    pthread_t thread;
};

static const vow_token owner = {"benchmark token"};

static void ring_bell(struct wake_floor *f)
{
    const uint64_t one = 1;
    MUST(write(f->bell, &one, sizeof(one)) == sizeof(one));
}

static void await_bell(struct wake_floor *f)
{
    uint64_t n;
    MUST(read(f->bell, &n, sizeof(n)) == sizeof(n));
}

static void commit_and_send(struct wake_floor *f)
{
    const char letter[LETTER] = {0};
    bare_commit(f->bare, &f->name, &owner, NULL);
    MUST(send(f->end, letter, LETTER, 0) == LETTER);
}

static void receive_letter(struct wake_floor *f)
{
    char letter[LETTER];
    MUST(recv(f->end, letter, LETTER, 0) == LETTER);
}

static void *commit_rounds(void *floor)
{
    struct wake_floor *f = floor;
    for (long i = 0; i < f->rounds; i++) {
        await_bell(f);
        commit_and_send(f);
    }
    return NULL;
}

static void *receive_rounds(void *floor)
{
    struct wake_floor *f = floor;
    for (long i = 0; i < f->rounds; i++) {
        receive_letter(f);
        ring_bell(f);
    }
    return NULL;
}

struct wake_floor *floor_open(const char *folder, int end, bool sends,
                              long rounds, bool threads)
{
    struct wake_floor *f = calloc(1, sizeof(*f));
    MUST(f != NULL);
    f->bare = bare_open(folder);
    f->rounds = rounds;
    f->end = end;
    f->bell = -1;
    if (!threads)
        return f;
    f->bell = eventfd(0, EFD_CLOEXEC);
    MUST(f->bell >= 0);
    MUST(pthread_create(&f->thread, NULL,
                        sends ? commit_rounds : receive_rounds, f) == 0);
    return f;
}

void floor_register(struct wake_floor *f, const vow_name *name)
{
    f->name = *name;
    bare_claim(f->bare, name, &owner);
}

void floor_send(struct wake_floor *f)
{
    if (f->bell < 0)
        commit_and_send(f);
    else
        ring_bell(f);
}

void floor_receive(struct wake_floor *f)
{
    if (f->bell < 0)
        receive_letter(f);
    else
        await_bell(f);
}

void floor_close(struct wake_floor *f)
{
    if (f->bell >= 0) {
        MUST(pthread_join(f->thread, NULL) == 0);
        (void)close(f->bell);
    }
    bare_close(f->bare);
    free(f);
}
