/* SPDX-License-Identifier: MIT */
/* claim.pml - named work over one record: claim, pulse, commit, wake.
 *
 * N processes ask for the same name. A step at the store, and what its caller
 * makes of the answer, is one atomic block. The world may kill owners, let the
 * lease of a live one lapse, lose wake-ups and answers, each at most so many
 * times; the lease of a dead owner always lapses in the end.
 *
 * A token is new for every attempt, so the epoch is not needed to tell attempts
 * apart, and is left out.
 *
 * Each of these takes one rule away, or adds or removes a fault:
 *   NO_TIMER       who waits only hears of wake-ups, and never looks again
 *   LATE_REGISTER  who waits registers in a second step, after the claim
 *   NO_FENCE       a commit does not look at the token
 *   FLUSH          the store may lose all it knows, once
 *   LOSSLESS       no wake-up is lost
 *   STRICT         a commit is refused when its record has vanished
 *   CRASHES, LAPSES, UNSURES, ABANDONS   how many of each at most; QUIET: none
 */
#define N 3
#ifdef QUIET
#define CRASHES 0
#define LAPSES 0
#define UNSURES 0
#define ABANDONS 0
#endif
#ifndef CRASHES
#define CRASHES 2
#endif
#ifndef LAPSES
#define LAPSES 2
#endif
#ifndef UNSURES
#define UNSURES 1
#endif
#ifndef ABANDONS
#define ABANDONS 1
#endif

#define ABSENT 0
#define RUN 1
#define DONE 2
#define NOBODY 0

/* What the store knows. */
byte state, token, value;
bool lapsed, registered[N];

/* What is on its way, and what became of each. */
bool push[N], alive[N] = true, settled[N], left[N];
byte got[N];

/* What happened. */
byte crashes, lapses, unsures, abandons, flushes, accepted;
#ifdef WITNESS /* else these only multiply the states */
bool taken_over, refused;
#define WITNESSED(what) what
#else
#define WITNESSED(what) skip
#endif

#define owner ((token - 1) % N) /* of a record that runs */

inline wake_all()
{
    i = 0;
    do
    :: i < N && registered[i] ->
        registered[i] = false;
        if
        :: push[i] = true
#ifndef LOSSLESS
        :: skip
#endif
        fi;
        i++
    :: i < N && !registered[i] -> i++
    :: i == N -> break
    od;
    i = 0
}

inline take()
{
    WITNESSED(taken_over = taken_over || state == RUN);
    state = RUN;
    token = mine;
    lapsed = false
}

inline settle()
{
    got[me] = value;
    settled[me] = true
}

/* The answer of the step before may be lost: the step is repeated, with the
 * same token. */
#define OR_UNSURE(again) :: unsures < UNSURES -> unsures++; goto again

proctype Asker(byte me)
{
    byte mine = me + 1, i;
ask:
    atomic {
        if
        :: state == DONE ->
            if
            :: settle(); goto end
            OR_UNSURE(ask)
            fi
        :: state == RUN && (token == mine || lapsed) || state == ABSENT ->
            if /* who has the token owns it still */
            :: state == RUN && token == mine -> lapsed = false
            :: else -> take()
            fi;
            if
            :: goto work
            OR_UNSURE(ask)
            fi
        :: else ->
#ifndef LATE_REGISTER
            registered[me] = true
#endif
        fi
    }
#ifdef LATE_REGISTER
    registered[me] = true;
#endif
    if
    :: atomic { push[me] -> push[me] = false; goto ask }
#ifndef NO_TIMER
    :: goto ask
#endif
    fi;
work:
    if
    :: atomic { crashes < CRASHES -> crashes++; alive[me] = false; goto end }
    :: atomic { /* abandon: who waits may take it */
        abandons < ABANDONS ->
        abandons++;
        left[me] = true;
        if
        :: state == RUN && token == mine ->
            state = ABSENT; token = NOBODY; lapsed = false; wake_all()
        :: else
        fi;
        goto end }
    :: atomic { /* a pulse; a record that vanished is made again */
        if
        :: state == RUN && token == mine -> lapsed = false
        :: state == ABSENT -> take()
        :: else -> goto lost
        fi }
    :: skip
    fi;
commit:
    /* By token, not by time: a lapsed lease that nobody took over can commit.
     * So can, in VOW_SHARED, one whose record vanished. */
    atomic {
        if
#ifdef NO_FENCE
        :: true ->
#elif defined(STRICT)
        :: state == RUN && token == mine ->
#else
        :: state == ABSENT || (state == RUN && token == mine) ->
#endif
            state = DONE; value = mine; token = mine; lapsed = false;
            accepted++;
            wake_all();
            if
            :: settle(); goto end
            OR_UNSURE(commit)
            fi
#ifndef NO_FENCE
        :: state == DONE -> /* the result that stands, perhaps our own */
            WITNESSED(refused = refused || token != mine);
            if
            :: settle(); goto end
            OR_UNSURE(commit)
            fi
        :: else ->
            WITNESSED(refused = true);
            goto lost
#endif
        fi
    }
lost: /* as one who waits, and never under the old token again */
    mine = mine + N;
    goto ask;
end:
    mine = NOBODY
}

proctype World()
{
    do
    :: atomic { state == RUN && !lapsed && !alive[owner] -> lapsed = true }
    :: atomic { state == RUN && !lapsed && alive[owner] && lapses < LAPSES ->
        lapses++; lapsed = true }
#ifdef FLUSH
    :: atomic { flushes < 1 && state != ABSENT ->
        flushes++; state = ABSENT; token = NOBODY; value = NOBODY;
        lapsed = false;
        registered[0] = false; registered[1] = false; registered[2] = false }
#endif
    od
}

#define over(p) (settled[p] || left[p] || !alive[p])
#define differ(p, q) (settled[p] && settled[q] && got[p] != got[q])

ltl one { [] (accepted <= 1) }
ltl same { [] !(differ(0, 1) || differ(1, 2) || differ(0, 2)) }
ltl live { <> (over(0) && over(1) && over(2)) }

#ifdef WITNESS /* These must be violated: the faults do happen. */
ltl no_takeover { [] !(taken_over && settled[0] && settled[1]) }
ltl no_refusal { [] !(refused && crashes == CRASHES) }
#endif

init
{
    atomic { run Asker(0); run Asker(1); run Asker(2); run World() }
}
