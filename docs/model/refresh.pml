/* SPDX-License-Identifier: MIT */
/* refresh.pml - a result that is made anew while it is there, and made by an
 * ordinary run when it has expired: never both at once.
 *
 * N processes ask for one name. The result that is there becomes old and expires
 * at any time. Who gets an old result makes it anew, under a name of its own:
 * the refresh. Each of the two names is claimed by an atomic step. The owner of
 * the name then looks at the refresh, and gives the name back while that is
 * under way. The owner of the refresh then looks at the name; if there is no
 * result it gives the refresh back and asks for the name, once.
 *
 * Leases of live owners do not lapse here: who has lost a lease may run beside
 * its successor, see claim.pml.
 *
 * Each of these takes one rule away, or changes a fault:
 *   NO_LOOK       the owner of the name does not look: it gave no stale_ms
 *   NO_LOOK_BACK  the owner of the refresh does not look
 *   LOOK_FIRST    the owner of the refresh looks before it claims
 *   CRASHES, EXPIRIES   how many of each at most
 */
#define N 3
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef EXPIRIES
#define EXPIRIES 2
#endif

#define ABSENT 0
#define RUN 1
#define DONE 2
#define NOBODY 9

/* What the store knows of the name and of its refresh. */
byte state = DONE, owner = NOBODY, refresher = NOBODY;
bool old = true;

bool alive[N] = true, over[N];
byte running; /* commands that run, of processes that live */
byte crashes, expiries;
bool refreshed, met; /* what happened: for the witnesses */

#define DIE crashes < CRASHES -> crashes++; alive[me] = false; over[me] = true

proctype Asker(byte me)
{
    bool again; /* it was to refresh: if another runs it, it does not wait */
ask:
    atomic {
        if
        :: state == DONE && old && !again -> goto refresh
        :: state == DONE && (!old || again) -> goto end
        :: state == ABSENT -> state = RUN; owner = me
        :: state == RUN && !again -> goto ask /* the timer */
        :: state == RUN && again -> goto end
        fi
    }
#ifndef NO_LOOK
    atomic {
        if
        :: refresher != NOBODY ->
            met = met || (alive[refresher] && again == false);
            state = ABSENT; owner = NOBODY;
            if
            :: again -> goto end
            :: else -> goto ask
            fi
        :: else
        fi
    }
#endif
    running++;
    if
    :: atomic { DIE; running--; goto end }
    :: running--
    fi;
    atomic {
        if
        :: state == RUN && owner == me -> state = DONE; old = false
        :: else
        fi;
        owner = (owner == me -> NOBODY : owner);
        goto end
    }
refresh:
#ifdef LOOK_FIRST
    if
    :: state != DONE -> again = true; goto ask
    :: else
    fi;
#endif
    atomic {
        if
        :: refresher != NOBODY -> goto end
        :: else -> refresher = me
        fi
    }
#if !defined(NO_LOOK_BACK) && !defined(LOOK_FIRST)
    atomic {
        if
        :: state != DONE -> refresher = NOBODY; again = true; goto ask
        :: else
        fi
    }
#endif
    refreshed = true;
    running++;
    if
    :: atomic { DIE; running--; goto end }
    :: running--
    fi;
    atomic { /* the result is put under the name, unless that runs */
        if
        :: state == RUN
        :: else -> state = DONE; old = false
        fi
    }
    refresher = (refresher == me -> NOBODY : refresher);
end:
    atomic { again = false; over[me] = true }
}

proctype World()
{
    do
    :: atomic { state == DONE && !old -> old = true }
    :: atomic { state == DONE && expiries < EXPIRIES ->
        expiries++; state = ABSENT }
    :: atomic { state == RUN && !alive[owner] -> /* its lease ends */
        state = ABSENT; owner = NOBODY }
    :: atomic { refresher != NOBODY && !alive[refresher] ->
        refresher = NOBODY }
    od
}

ltl one_run { [] (running <= 1) }
ltl live { <> (over[0] && over[1] && over[2]) }

/* These must be violated: it does happen. */
ltl no_refresh { [] !(refreshed && expiries == EXPIRIES) }
ltl no_meeting { [] !met }
ltl no_crash { [] !(crashes == CRASHES && refreshed) }

init
{
    atomic { run Asker(0); run Asker(1); run Asker(2); run World() }
}
