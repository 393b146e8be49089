/* SPDX-License-Identifier: MIT */
/* pool.pml - places in a pool: weighted, first come first served, with leases.
 *
 * Two processes that need one place each and one that needs both places there
 * are come again and again. Every step first clears away whose lease has lapsed, holders and those in the queue, then grants from the
 * head of the queue what fits, and pushes a wake-up to whom it granted. The
 * world may kill holders and those in the queue, let leases of live ones lapse,
 * lose wake-ups and answers.
 *
 * Each of these takes one rule away, or adds or removes a fault:
 *   NO_TIMER        who queues only hears of wake-ups
 *   NO_HOLD_LEASE   a dead holder holds for ever
 *   NO_QUEUE_LEASE  a dead one in the queue stays there
 *   ANY_ORDER       grants whatever fits, not only the head
 *   TWO_STEPS       looks for room, and takes it in a second step
 *   LOSSLESS        no wake-up is lost
 *   CRASHES, LAPSES, UNSURES   how many of each at most
 */
#define N 3
#define LIMIT 2
#define weight(p) (1 + (p) / 2) /* 1, 1, 2 */
#ifndef CRASHES
#define CRASHES 2
#endif
#ifndef LAPSES
#define LAPSES 1
#endif
#ifndef UNSURES
#define UNSURES 1
#endif

/* What the store knows. */
chan line = [N] of { byte };
bool queued[N], held[N], lapsed[N];
byte used;

bool push[N], alive[N] = true, wants[N], uses[N];
byte crashes, lapses, unsures;

#ifdef ORDER /* who was in the queue when p came, else only more states */
bool before[9], bypassed;
#define BEFORE(p, q) before[(p) * N + (q)]
inline note_arrival(p)
{
    BEFORE(p, 0) = queued[0];
    BEFORE(p, 1) = queued[1];
    BEFORE(p, 2) = queued[2]
}
inline note_leave(p)
{
    BEFORE(0, p) = false;
    BEFORE(1, p) = false;
    BEFORE(2, p) = false
}
inline note_grant(p)
{
    bypassed = bypassed || BEFORE(p, 0) || BEFORE(p, 1) || BEFORE(p, 2)
}
#else
#define note_arrival(p) skip
#define note_leave(p) skip
#define note_grant(p) skip
#endif

inline unqueue(p)
{
    line??eval(p);
    queued[p] = false;
    note_leave(p)
}

inline unhold(p)
{
    held[p] = false;
    used = used - weight(p)
}

inline reap()
{
    i = 0;
    do
    :: i < N && lapsed[i] && held[i] -> unhold(i); lapsed[i] = false; i++
    :: i < N && lapsed[i] && queued[i] -> unqueue(i); lapsed[i] = false; i++
    :: i < N && lapsed[i] && !held[i] && !queued[i] -> lapsed[i] = false; i++
    :: i < N && !lapsed[i] -> i++
    :: i == N -> break
    od;
    i = 0
}

inline enqueue(p)
{
    if
    :: !held[p] && !queued[p] ->
        note_arrival(p);
        line!p;
        queued[p] = true
    :: else
    fi
}

inline grant(p)
{
    unqueue(p);
    note_grant(p);
    held[p] = true;
    used = used + weight(p);
    if
    :: p != me -> push[p] = true
#ifndef LOSSLESS
    :: p != me
#endif
    :: p == me
    fi
}

#define fits(p) (used + weight(p) <= LIMIT)
#define head(p) (queued[p] && line?[eval(p)])

inline serve()
{
    do
#ifdef ANY_ORDER
    :: queued[0] && fits(0) -> grant(0)
    :: queued[1] && fits(1) -> grant(1)
    :: queued[2] && fits(2) && !(queued[0] && fits(0)) &&
       !(queued[1] && fits(1)) -> grant(2)
#else
    :: head(0) && fits(0) -> grant(0)
    :: head(1) && fits(1) -> grant(1)
    :: head(2) && fits(2) -> grant(2)
#endif
    :: else -> break
    od
}

#define OR_UNSURE(again) :: unsures < UNSURES -> unsures++; goto again
#define OR_DIE \
    :: atomic { crashes < CRASHES -> crashes++; alive[me] = false; \
        wants[me] = false; uses[me] = false; goto end }

proctype User(byte me)
{
    byte i;
    bool room;
come:
    wants[me] = true;
acquire:
#ifdef TWO_STEPS
    atomic { reap(); enqueue(me); room = fits(me) }
    atomic {
        if
        :: room && queued[me] -> room = false; grant(me)
        :: else -> room = false
        fi;
        if
        :: held[me] -> goto own
        :: else
        fi
    }
#else
    atomic {
        reap();
        enqueue(me);
        serve();
        if
        OR_UNSURE(acquire)
        :: held[me] -> goto own
        :: !held[me]
        fi
    }
#endif
    if
    OR_DIE
    :: atomic { push[me] -> push[me] = false; goto acquire }
#ifndef NO_TIMER
    :: goto acquire
#endif
    fi;
own:
    atomic { wants[me] = false; uses[me] = true; push[me] = false };
    if
    OR_DIE
    :: uses[me] = false
    fi;
release:
    atomic {
        reap();
        if
        :: held[me] -> unhold(me)
        :: queued[me] -> unqueue(me) /* it was lost, and asked for again */
        :: else
        fi;
        serve();
        if
        OR_UNSURE(release)
        :: goto come
        fi
    }
end:
    skip
}

#ifdef NO_HOLD_LEASE
#define has_hold_lease(p) false
#else
#define has_hold_lease(p) held[p]
#endif
#ifdef NO_QUEUE_LEASE
#define has_queue_lease(p) false
#else
#define has_queue_lease(p) queued[p]
#endif
#define has_lease(p) (has_hold_lease(p) || has_queue_lease(p))
#define MAY_LAPSE(p) \
    :: atomic { has_lease(p) && !lapsed[p] && !alive[p] -> lapsed[p] = true } \
    :: atomic { has_lease(p) && !lapsed[p] && alive[p] && lapses < LAPSES -> \
        lapses++; lapsed[p] = true }

proctype World()
{
    do
    MAY_LAPSE(0)
    MAY_LAPSE(1)
    MAY_LAPSE(2)
    od
}

#define user(p) (uses[p] * weight(p))

ltl within { [] (used <= LIMIT) }
ltl within_use { [] (user(0) + user(1) + user(2) <= LIMIT) }
ltl heavy_served { [] (wants[2] -> <> !wants[2]) }
ltl light_served { [] (wants[0] -> <> !wants[0]) }
#ifdef ORDER
ltl in_order { [] !bypassed }
#endif

/* These must be violated: it is full; a dead one holds, a dead one is the head
 * of the queue, and the last one waits for both. */
ltl not_full { [] !(used == LIMIT && queued[0] && queued[1]) }
#define dead_holder (held[0] && !alive[0])
#define dead_head (head(2) && !alive[2])
ltl not_both { [] !(dead_holder && dead_head && queued[1]) }

init
{
    atomic { run User(0); run User(1); run User(2); run World() }
}
