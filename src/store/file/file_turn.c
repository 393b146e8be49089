/* SPDX-License-Identifier: MIT */
/* file_turn.c - writers of many processes, one after the other.
 *
 * WHY   SQLite's writers poll for its lock: who has just written is likeliest
 *       to have it again, and others starve while the throughput looks fine.
 * HOW   Tickets, in a file that all map. Who wants to write draws a number and
 *       sleeps on a futex of its own until that is served; who has written
 *       serves the next. SQLite's lock stays what keeps the data safe. This
 *       here is only an order, and may fail in every way without harm:
 *       a turn that makes no move for a while, or whose process has died, is
 *       passed on by who waits; who finds its number passed draws another, and
 *       after some of those goes without. Whose turn it is and who waits for
 *       SQLite's lock (a stopped process has it, or a disk is slow) beats, so
 *       that all others go on waiting in order behind it.
 * INVARIANTS
 *   T1  serving <= next, unless the file was spoilt; then it is put right
 *   T2  a number is served once: serving grows by compare and swap only
 * LIMITS  Numbers share SLOTS futexes. A process that is stopped in the line
 *       costs VOW__FILE_STUCK_MS, once. Without a rival a turn needs no kernel.
 * THREADS  any, and processes.
 */
#include "base/clock.h"
#include "store/file/file_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    SLOTS = 1024,
    LOOK_MS = 5, /* how often who waits looks whether it goes on */
    TRIES = 3    /* numbers drawn, then it goes without */
};

struct slot {
    _Atomic uint64_t ticket; /* number * 2, and 1 when it left the line */
    _Atomic uint32_t wakes;  /* the futex */
    _Atomic int32_t pid;
};

struct vow__file_line {
    _Atomic uint64_t next;    /* the number to be drawn */
    _Atomic uint64_t serving; /* the number whose turn it is */
    _Atomic uint64_t beats;
    uint64_t unused[5];
    struct slot slots[SLOTS];
};

/* What one who waits has seen move. */
struct watch {
    uint64_t serving;
    uint64_t beats;
    uint64_t since_ns;
};

enum outcome { MINE, PASSED, LATE };

static enum outcome wait_for(struct vow__file_line *l, uint64_t mine,
                             uint64_t ends_ns, uint64_t stuck_ms);
static bool stuck(struct vow__file_line *l, struct watch *w, uint64_t now_ns,
                  uint64_t stuck_ms);
static void pass_on(struct vow__file_line *l, uint64_t from, bool all_gone);
static bool nobody(struct vow__file_line *l, uint64_t ticket, bool all_gone);
static bool dead(struct vow__file_line *l, uint64_t ticket);
static struct slot *slot_of(struct vow__file_line *l, uint64_t ticket);
static void futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t ns);
static void futex_wake(_Atomic uint32_t *word);

/* The blocks are there before it is mapped: a full disk must not be met by
 * touching a page. */
struct vow__file_line *vow__file_line_open(int dir)
{
    const size_t size = sizeof(struct vow__file_line);
    int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(dir, "line", flags, 0600);
    if (fd < 0)
        return NULL;
    void *at = MAP_FAILED;
    if (posix_fallocate(fd, 0, (off_t)size) == 0)
        at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    return at == MAP_FAILED ? NULL : at;
}

void vow__file_line_close(struct vow__file_line *line)
{
    if (line != NULL)
        (void)munmap(line, sizeof(*line));
}

bool vow__file_turn_take(struct vow__file_line *l, pid_t pid, uint64_t ends_ns,
                         uint64_t stuck_ms, uint64_t *ret_ticket)
{
    for (int i = 0; i < TRIES; i++) {
        uint64_t mine = atomic_fetch_add(&l->next, 1);
        struct slot *slot = slot_of(l, mine);
        atomic_store(&slot->pid, (int32_t)pid);
        atomic_store(&slot->ticket, mine << 1);
        enum outcome o = wait_for(l, mine, ends_ns, stuck_ms);
        if (o == MINE) {
            *ret_ticket = mine;
            return true;
        }
        if (o == LATE) {
            atomic_store(&slot->ticket, mine << 1 | 1);
            vow__file_turn_pass(l, mine); /* it may just have come */
            return false;
        }
    }
    return false;
}

static enum outcome wait_for(struct vow__file_line *l, uint64_t mine,
                             uint64_t ends_ns, uint64_t stuck_ms)
{
    struct slot *slot = slot_of(l, mine);
    struct watch w = {.since_ns = 0};
    for (;;) {
        uint32_t wakes = atomic_load(&slot->wakes);
        uint64_t serving = atomic_load(&l->serving);
        if (serving == mine)
            return MINE;
        if (serving > atomic_load(&l->next)) { /* keeps T1 */
            (void)atomic_compare_exchange_strong(&l->serving, &serving, mine);
            continue;
        }
        if (serving > mine)
            return PASSED;
        uint64_t now_ns = vow__file_now_ns();
        if (stuck(l, &w, now_ns, stuck_ms)) {
            pass_on(l, w.serving, true);
            continue;
        }
        if (now_ns >= ends_ns)
            return LATE;
        futex_wait(&slot->wakes, wakes, (uint64_t)LOOK_MS * VOW__NS_PER_MS);
    }
}

/* Nothing has moved for too long, or can: whose turn it is has died. */
static bool stuck(struct vow__file_line *l, struct watch *w, uint64_t now_ns,
                  uint64_t stuck_ms)
{
    uint64_t serving = atomic_load(&l->serving);
    uint64_t beats = atomic_load(&l->beats);
    if (w->since_ns == 0 || serving != w->serving || beats != w->beats) {
        *w = (struct watch){serving, beats, now_ns};
        return false;
    }
    uint64_t still_ms = (now_ns - w->since_ns) / VOW__NS_PER_MS;
    return still_ms >= stuck_ms || (still_ms >= LOOK_MS && dead(l, serving));
}

void vow__file_turn_beat(struct vow__file_line *line)
{
    atomic_fetch_add(&line->beats, 1);
}

void vow__file_turn_pass(struct vow__file_line *line, uint64_t ticket)
{
    pass_on(line, ticket, false);
}

/* Serve the number behind `from`, if that is being served. `all_gone`: those
 * who have died or never came are left out too, which costs a look at each. */
static void pass_on(struct vow__file_line *l, uint64_t from, bool all_gone)
{
    uint64_t next = atomic_load(&l->next);
    uint64_t to = from + 1;
    while (to < next && nobody(l, to, all_gone))
        to++;
    if (!atomic_compare_exchange_strong(&l->serving, &from, to)) /* keeps T2 */
        return;
    if (to >= atomic_load(&l->next))
        return;
    atomic_fetch_add(&slot_of(l, to)->wakes, 1);
    futex_wake(&slot_of(l, to)->wakes);
}

static bool nobody(struct vow__file_line *l, uint64_t ticket, bool all_gone)
{
    uint64_t there = atomic_load(&slot_of(l, ticket)->ticket);
    if (there == (ticket << 1 | 1))
        return true;
    return all_gone && (there >> 1 > ticket || dead(l, ticket));
}

static bool dead(struct vow__file_line *l, uint64_t ticket)
{
    struct slot *slot = slot_of(l, ticket);
    pid_t pid = atomic_load(&slot->pid);
    return atomic_load(&slot->ticket) >> 1 == ticket && pid > 0 &&
           kill(pid, 0) != 0 && errno == ESRCH;
}

static struct slot *slot_of(struct vow__file_line *l, uint64_t ticket)
{
    return &l->slots[ticket % SLOTS];
}

static void futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t ns)
{
    struct timespec t = {.tv_sec = 0, .tv_nsec = (long)ns};
    (void)syscall(SYS_futex, word, FUTEX_WAIT, value, &t, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}
