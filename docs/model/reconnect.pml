/* SPDX-License-Identifier: MIT */
/* reconnect.pml - after a connection was lost: subscribe, then claim again.
 *
 * A store that pushes wake-ups over connections drops those for whom nobody is
 * subscribed. Nothing else is lost here, nobody dies and no timer helps: the
 * order alone must be enough. A connection may break at any time, also between
 * a step and its answer; all that is known then is that a step in flight may
 * have happened, and it is repeated with the same token.
 *
 * Each of these breaks the rule:
 *   CLAIM_FIRST  claims again, then subscribes
 *   NO_RECLAIM   subscribes, and waits as before
 * and this one adds what mends them: TIMER
 */
#define N 3
#ifndef CUTS
#define CUTS 3
#endif

#define ABSENT 0
#define RUN 1
#define DONE 2
#define NOBODY 0

byte state, token, value;
bool registered[N];

bool connected[N], subscribed[N], push[N], settled[N];
byte got[N], cuts;

inline settle()
{
    got[me] = value;
    settled[me] = true
}

inline wake_all()
{
    i = 0;
    do
    :: i < N ->
        push[i] = push[i] || (registered[i] && subscribed[i]);
        registered[i] = false;
        i++
    :: i == N -> break
    od;
    i = 0
}

/* The server forgets the subscription, and what it had sent is lost. */
#define BREAK(p) \
    cuts++; connected[p] = false; subscribed[p] = false; push[p] = false
#define OR_CUT :: cuts < CUTS -> BREAK(me); goto connect
#define NOT_CONNECTED :: !connected[me] -> goto connect

proctype Asker(byte me)
{
    byte mine = me + 1, i;
    bool working, waiting;
connect:
    connected[me] = true;
#ifndef CLAIM_FIRST
    if
    :: atomic { connected[me] -> subscribed[me] = true }
    NOT_CONNECTED
    fi;
#endif
    if
    :: working -> goto commit
#ifdef NO_RECLAIM
    :: waiting -> goto wait
#endif
    :: else
    fi;
ask:
    atomic {
        if
        NOT_CONNECTED
        :: connected[me] && state == DONE ->
            if
            :: settle(); goto end
            OR_CUT
            fi
        :: connected[me] && state == RUN && token != mine ->
            registered[me] = true;
            if
            :: waiting = true
            OR_CUT
            fi
        :: connected[me] && (state == ABSENT || token == mine &&
           state == RUN) ->
            state = RUN; token = mine;
            if
            :: working = true; goto commit
            OR_CUT
            fi
        fi
    }
#ifdef CLAIM_FIRST
    if
    :: atomic { connected[me] -> subscribed[me] = true }
    NOT_CONNECTED
    fi;
#endif
wait:
    if
    :: atomic { push[me] -> push[me] = false; waiting = false; goto ask }
    NOT_CONNECTED
#ifdef TIMER
    :: goto ask
#endif
    fi;
commit:
    atomic {
        if
        NOT_CONNECTED
        :: connected[me] && state == RUN ->
            assert(token == mine);
            state = DONE; value = mine; wake_all();
            if
            :: settle(); goto end
            OR_CUT
            fi
        :: connected[me] && state == DONE -> settle(); goto end
        fi
    }
end:
    working = false;
    waiting = false
}

proctype World()
{
    do
    :: atomic { connected[0] && cuts < CUTS -> BREAK(0) }
    :: atomic { connected[1] && cuts < CUTS -> BREAK(1) }
    :: atomic { connected[2] && cuts < CUTS -> BREAK(2) }
    od
}

#define differ(p, q) (settled[p] && settled[q] && got[p] != got[q])

ltl same { [] !(differ(0, 1) || differ(1, 2) || differ(0, 2)) }
ltl live { <> (settled[0] && settled[1] && settled[2]) }

/* This must be violated: connections do break. */
ltl no_cut { [] !(cuts == CUTS && settled[0] && settled[1] && settled[2]) }

init
{
    atomic { run Asker(0); run Asker(1); run Asker(2); run World() }
}
