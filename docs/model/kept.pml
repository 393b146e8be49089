/* SPDX-License-Identifier: MIT */
/* kept.pml - results that are not kept (ttl 0) but for those who waited.
 *
 * Each process asks twice for the same name, with a token for each ask. A result
 * stays for those who were registered as waiting when it was committed, each
 * with the token it registered with, and may be read again by them; whoever else
 * claims begins anew, also while a result is still there for others. Of values
 * nothing is of interest but whether they are older than the ask.
 *
 * Each of these takes one rule away, or adds or removes a fault:
 *   FOR_NOBODY   it is not kept at all
 *   FOR_ALL      it is kept for whoever claims
 *   READ_ONCE    it goes when it was read, although the answer may get lost
 *   BY_PROCESS   it is kept for the process, whichever ask it comes with
 *   NO_TIMER     who waits only hears of wake-ups
 *   CRASHES, LAPSES, UNSURES, LEAVES   how many of each at most
 */
#define N 3
#define ASKS 2
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef LAPSES
#define LAPSES 1
#endif
#ifndef UNSURES
#define UNSURES 1
#endif
#ifndef LEAVES
#define LEAVES 1
#endif
#define NOBODY 0

/* What the store knows: who runs, who is registered and with which token, and
 * for whom a result is kept; the last only for FOR_ALL. */
byte token;
bool lapsed;
byte registered[N], kept_for[N];
bool result;

bool push[N], alive[N] = true, over[N];
byte crashes, lapses, unsures, leaves;
bool aged[N]; /* what is kept for it is older than its ask */
bool stale, needless; /* what must not happen */

#define owner ((token - 1) % N)
#define FITS(p) (kept_for[p] == mine)
#ifdef BY_PROCESS
#undef FITS
#define FITS(p) (kept_for[p] != NOBODY)
#endif

inline keep_for(p)
{
    if
    :: registered[p] != NOBODY ->
#ifndef FOR_NOBODY
        kept_for[p] = registered[p];
        aged[p] = false;
#endif
        registered[p] = NOBODY;
        if
        :: push[p] = true
        :: skip
        fi
    :: else
    fi
}

#define OR_UNSURE(again) :: unsures < UNSURES -> unsures++; goto again

inline forget()
{
    kept_for[me] = NOBODY;
    aged[me] = false
}

/* promised: a result was committed while this ask was registered. */
proctype Asker(byte me)
{
    byte mine = me + 1, left = (me == 2 -> 1 : ASKS);
    bool promised;
ask:
    atomic {
        if
        :: FITS(me) ->
            stale = stale || aged[me];
#ifdef READ_ONCE
            forget();
#endif
            if
            :: goto next
            OR_UNSURE(ask)
            fi
#ifdef FOR_ALL
        :: !FITS(me) && token == NOBODY && result ->
            stale = true; /* if it waited, it would fit */
            goto next
#endif
        :: !FITS(me) && token != NOBODY && token != mine && !lapsed ->
            forget();
            registered[me] = mine
        :: else ->
            forget();
            needless = needless || promised;
            token = mine; lapsed = false;
            if
            :: goto work
            OR_UNSURE(ask)
            fi
        fi
    }
    if
    :: atomic { push[me] -> push[me] = false }
#ifndef NO_TIMER
    :: skip
#endif
    :: atomic { leaves < LEAVES -> leaves++; goto next }
    fi;
    atomic { promised = registered[me] != mine; goto ask }
work:
    if
    :: atomic { crashes < CRASHES -> crashes++; alive[me] = false;
        left = 0; promised = false; over[me] = true; goto end }
    :: skip
    fi;
    atomic {
        if
        :: token == mine ->
            token = NOBODY; lapsed = false; result = true;
            keep_for(0); keep_for(1); keep_for(2)
        :: else -> mine = mine + N; promised = false; goto ask
        fi
    }
next:
    atomic {
        left--; mine = mine + N; promised = false;
        aged[me] = kept_for[me] != NOBODY;
        if
        :: left > 0 -> goto ask
        :: else -> mine = NOBODY; over[me] = true
        fi
    }
end:
    skip
}

proctype World()
{
    do
    :: atomic { token != NOBODY && !lapsed && !alive[owner] -> lapsed = true }
    :: atomic { token != NOBODY && !lapsed && alive[owner] &&
        lapses < LAPSES -> lapses++; lapsed = true }
    od
}

ltl live { <> (over[0] && over[1] && over[2]) }
ltl fresh { [] !stale }
ltl served { [] !needless }

/* This must be violated: a result waits to be read, while the next is made. */
ltl no_late { [] !(kept_for[0] == 1 && token == 2 + N && !lapsed) }

init
{
    atomic { run Asker(0); run Asker(1); run Asker(2); run World() }
}
