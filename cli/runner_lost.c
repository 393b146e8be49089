/* SPDX-License-Identifier: MIT */
/* runner_lost.c - a runner after the loss of the lease: new leases of the name
 * are for other processes.
 *
 * HOW   The caller of the runner still waits for the name, so the authority may
 *       offer the name again. A command is not started twice: each such lease,
 *       a turn, is given back, and the authority pauses between two turns,
 *       twice as long each time and up to a quarter of the lease. At the first
 *       turn, the store is asked whether other processes wait.
 * LIMITS  TURNS_MAX turns: waiters may have died, so that no process takes the
 *       name.
 * THREADS  loop thread only.
 */
#include "runner.h"
#include "say.h"
#include "session.h"

enum {
    TURNS_MAX = 16,
    TURNS_UNKNOWN = 4 /* for a store that does not know whether others wait */
};

static vow_next on_waiters_seen(vow_value v, void *runner);
static vow_next on_no_waiters_seen(vow_error *e, void *runner);
static vow_future *runner_abandon_turn(struct runner *r, vow_lease *lease);

void runner_leave(struct runner *r)
{
    vow_deferred *done = r->done;
    if (done == NULL)
        return;
    r->done = NULL;
    (void)vow_reject_drop(done, vow_error_new(session_loop(), VOW_ELOST, NULL));
}

vow_future *runner_pass_turn(struct runner *r, vow_lease *lease)
{
    r->turns++;
    if (lease_is_alone(lease) || r->turns > TURNS_MAX)
        r->o.hopeless(r);
    if (r->turns > 1 || session_is_over())
        return runner_abandon_turn(r, lease);
    r->turn = vow_lease_ref(lease);
    return vow_then_drop(vow_authority_peek(session_authority(), r->o.name, 1),
                         on_waiters_seen, on_no_waiters_seen, r);
}

static vow_next on_waiters_seen(vow_value v, void *runner)
{
    struct runner *r = runner;
    const vow_records *seen = vow_as_ptr(v);
    if (seen->n != 1 || seen->at[0].waiters == 0)
        r->o.hopeless(r);
    else if (seen->at[0].waiters == UINT32_MAX)
        r->turns = TURNS_MAX - TURNS_UNKNOWN;
    return vow_follow(runner_abandon_turn(r, r->turn));
}

static vow_next on_no_waiters_seen(vow_error *e, void *runner)
{
    struct runner *r = runner;
    (void)e;
    return vow_follow(runner_abandon_turn(r, r->turn));
}

/* Abandons the lease before the future is rejected: a rejection under a lease
 * counts as a failure. */
static vow_future *runner_abandon_turn(struct runner *r, vow_lease *lease)
{
    (void)vow_lease_abandon(lease);
    r->turn = vow_lease_unref(r->turn);
    runner_leave(r);
    return vow_refused(session_loop(), VOW_ECANCELED, NULL);
}

void runner_lost_for_good(const struct runner *r)
{
    const struct shared *s = r->o.shared;
    if (session_is_over())
        return;
    say("vow %s: the lease of %s was lost: its result was not published",
        s->store.verb->name, r->o.label);
    session_over(s->keep_lost ? ending_code(runner_ending(&r->proc))
                              : EXIT_LOST);
}

/* VOW_ELOST comes from runner_leave(), if the authority works without the store
 * and takes this error for the result. */
bool runner_is_hopeless(int code)
{
    return code == VOW_ESTORE || code == VOW_EUNSURE || code == VOW_ELOST;
}

bool lease_is_alone(const vow_lease *lease)
{
    return vow_lease_left_ms(lease) == UINT64_MAX;
}
