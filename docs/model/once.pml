/* SPDX-License-Identifier: MIT */
/* once.pml - VOW_ONCE: nobody takes over, so that work never starts twice
 * unless somebody decided so.
 *
 * N processes ask for the same name. When its owner falls silent the name is
 * in doubt, and asking says so. A person looks at what is in doubt, decides once
 * for each lease whether it happened or is to be done again, and sends the
 * decision, perhaps several times, because answers get lost. It names the epoch
 * it is about.
 *
 * Each of these takes one rule away:
 *   TAKEOVER     a lapsed lease is taken over, as in the other modes
 *   ANY_EPOCH    a decision holds for whatever is in doubt when it arrives
 *   NOT_STRICT   a commit is accepted when its record has vanished
 * and this one adds a person: RESOLVER
 */
#define N 3
#ifndef CRASHES
#define CRASHES 2
#endif
#ifndef LAPSES
#define LAPSES 1
#endif
#ifndef UNSURES
#define UNSURES 1
#endif

#define ABSENT 0
#define RUN 1
#define DONE 2
#define NOBODY 0
#define BY_HAND 99

/* What the store knows: the record, and the epoch of the last claim. */
byte state, epoch, token, value;
bool lapsed;

bool alive[N] = true, settled[N], told[N]; /* told: rejected, in doubt */
byte got[N];
byte crashes, lapses, unsures, starts, again, results;

#define owner ((token - 1) % N)
#define doubt (state == RUN && lapsed)

inline settle()
{
    got[me] = value;
    settled[me] = true
}

#define OR_UNSURE(again) :: unsures < UNSURES -> unsures++; goto again
#define DIE crashes < CRASHES -> crashes++; alive[me] = false; goto end

proctype Asker(byte me)
{
    byte mine = me + 1;
ask:
    atomic {
        if
        :: state == DONE ->
            if
            :: settle(); goto end
            OR_UNSURE(ask)
            fi
        :: state == RUN && token == mine -> lapsed = false; goto start
#ifdef TAKEOVER
        :: state == ABSENT || (doubt && token != mine) ->
#else
        :: state == ABSENT ->
#endif
            state = RUN; token = mine; epoch++; lapsed = false;
            if
            :: goto start
            OR_UNSURE(ask)
            fi
#ifndef TAKEOVER
        :: doubt && token != mine -> told[me] = true; goto end
#endif
        :: state == RUN && token != mine && !lapsed
        fi
    }
    goto ask; /* the timer */
start:
    if
    :: atomic { DIE }
    :: starts++
    fi;
    if
    :: atomic { DIE }
    :: skip
    fi;
commit:
    atomic {
        if
#ifdef NOT_STRICT
        :: state == ABSENT || (state == RUN && token == mine) ->
#else
        :: state == RUN && token == mine ->
#endif
            state = DONE; value = mine; token = mine; lapsed = false;
            results++;
            if
            :: settle(); goto end
            OR_UNSURE(commit)
            fi
        :: state == DONE -> settle(); goto end
        :: else -> told[me] = true; goto end /* too late: VOW_ELOST */
        fi
    }
end:
    mine = NOBODY
}

#ifdef RESOLVER
#define is_meant (doubt && epoch == about)
#ifdef ANY_EPOCH
#undef is_meant
#define is_meant doubt
#endif

proctype Person()
{
    byte about, decided;
    do
    :: atomic {
        doubt && epoch > decided ->
        about = epoch;
        decided = epoch;
        if
        :: goto happened
        :: again++
        fi };
do_again:
        atomic {
            if
            :: is_meant -> state = ABSENT; token = NOBODY; lapsed = false
            :: else -> decided = 0 /* it was not in doubt any more */
            fi;
            if
            :: about = 0
            OR_UNSURE(do_again)
            fi };
        goto next;
happened:
        atomic {
            if
            :: is_meant ->
                state = DONE; value = BY_HAND; token = NOBODY; lapsed = false;
                results++
            :: else -> decided = 0
            fi;
            if
            :: about = 0
            OR_UNSURE(happened)
            fi };
next:
        skip
    od
}
#endif

proctype World()
{
    do
    :: atomic { state == RUN && !lapsed && !alive[owner] -> lapsed = true }
    :: atomic { state == RUN && !lapsed && alive[owner] && lapses < LAPSES ->
        lapses++; lapsed = true }
    od
}

#define over(p) (settled[p] || told[p] || !alive[p])
#define differ(p, q) (settled[p] && settled[q] && got[p] != got[q])
#define orphan (doubt && !alive[owner])

ltl one_start { [] (starts <= 1 + again) }
ltl one { [] (results <= 1) }
ltl same { [] !(differ(0, 1) || differ(1, 2) || differ(0, 2)) }
ltl live { <> (over(0) && over(1) && over(2)) }
/* In doubt until resolved, and then no more. */
ltl stays { [] (orphan -> [] orphan) }
ltl resolved { [] (orphan -> <> !orphan) }

/* These must be violated: the faults do happen. */
ltl no_doubt { [] !(told[0] && starts == 1 && crashes == 1) }
#ifdef RESOLVER
ltl no_second { [] !(starts == 2 && settled[0]) }
ltl no_word { [] !(settled[0] && got[0] == BY_HAND) }
#endif

init
{
    atomic {
        run Asker(0); run Asker(1); run Asker(2); run World();
#ifdef RESOLVER
        run Person()
#endif
    }
}
