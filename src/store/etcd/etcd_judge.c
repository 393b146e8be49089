/* SPDX-License-Identifier: MIT */
/* etcd_judge.c - what becomes of a step, by what was read.
 *
 * WHY   The rules are the same for every store (store/rules). Here they are
 *       without time and without requests: a lease that has lapsed is a key
 *       that is absent.
 * INVARIANTS  nothing here changes anything
 * LIMITS  Etcd has no clock to ask: that owners were lost long ago does not
 *       make a new beginning, each counts.
 */
#include "store/etcd/etcd_names.h"

#include <string.h>

static bool counts(const struct vow__er *er, const vow_claim_request *ask);
static struct vow__verdict judge_absent(const vow_commit_request *ask);
static struct vow__verdict judge_runs(const struct vow__er *er,
                                      const vow_commit_request *ask);
static struct vow__verdict judge_settled(const struct vow__er *er,
                                         const vow_commit_request *ask);

bool vow__er_of(const struct vow__er *er, const vow_token *token)
{
    return memcmp(er->token.bytes, token->bytes, sizeof(token->bytes)) == 0;
}

bool vow__er_held(const struct vow__er *er, const vow_hold *hold)
{
    return er->epoch == hold->epoch && vow__er_of(er, &hold->token);
}

enum vow__act vow__judge_claim(const struct vow__er *er,
                               const vow_claim_request *ask)
{
    if (er->state == VOW__ER_ABSENT)
        return VOW__ACT_OWN;
    if (er->state != VOW__ER_RUNS)
        return counts(er, ask) ? VOW__ACT_SETTLED : VOW__ACT_OWN;
    if (vow__er_of(er, &ask->token))
        return VOW__ACT_RENEW;
    if (er->alive != 0)
        return VOW__ACT_WAIT;
    if (er->mode == VOW_ONCE)
        return VOW__ACT_DOUBT;
    bool force = (ask->flags & VOW_CLAIM_FORCE) != 0;
    return er->takeovers >= ask->takeovers && !force ? VOW__ACT_GIVE_UP
                                                     : VOW__ACT_REPLACE;
}

/* Is the result there, for this claim? One that its own token has settled
 * always is: the claim came twice. */
static bool counts(const struct vow__er *er, const vow_claim_request *ask)
{
    if (vow__er_of(er, &ask->token))
        return true;
    return (ask->flags & VOW_CLAIM_FORCE) == 0 && !er->hidden;
}

enum vow__act vow__judge_pulse(const struct vow__er *er, const vow_token *token)
{
    if (er->state == VOW__ER_ABSENT)
        return VOW__ACT_OWN;
    if (er->state != VOW__ER_RUNS)
        return VOW__ACT_SETTLED;
    return vow__er_of(er, token) ? VOW__ACT_RENEW : VOW__ACT_LOST;
}

struct vow__verdict vow__judge_commit(const struct vow__er *er,
                                      const vow_commit_request *ask)
{
    if (er->state == VOW__ER_ABSENT)
        return judge_absent(ask);
    return er->state == VOW__ER_RUNS ? judge_runs(er, ask)
                                     : judge_settled(er, ask);
}

static struct vow__verdict judge_absent(const vow_commit_request *ask)
{
    bool abandoned = ask->outcome == VOW_OUTCOME_ABANDONED;
    if ((ask->flags & VOW_COMMIT_RESOLVE) != 0 ||
        ((ask->flags & VOW_COMMIT_STRICT) != 0 && !abandoned))
        return (struct vow__verdict){VOW_STATUS_NONE, false};
    return (struct vow__verdict){VOW_STATUS_OWNED, true};
}

static struct vow__verdict judge_runs(const struct vow__er *er,
                                      const vow_commit_request *ask)
{
    bool right =
        (ask->flags & VOW_COMMIT_PUT) == 0 && vow__er_held(er, &ask->hold);
    if ((ask->flags & VOW_COMMIT_RESOLVE) != 0)
        right = vow__er_says(er) == VOW_STATUS_DOUBT &&
                er->epoch == ask->hold.epoch;
    return (struct vow__verdict){right ? VOW_STATUS_OWNED : VOW_STATUS_LOST,
                                 right};
}

static struct vow__verdict judge_settled(const struct vow__er *er,
                                         const vow_commit_request *ask)
{
    bool put = (ask->flags & VOW_COMMIT_PUT) != 0;
    bool newer = ask->hold.epoch > er->epoch;
    if (vow__er_held(er, &ask->hold)) /* it did, and this is the second time */
        return (struct vow__verdict){VOW_STATUS_OWNED, false};
    if (er->hidden && (put || newer))
        return judge_absent(ask);
    if (put && newer)
        return (struct vow__verdict){VOW_STATUS_OWNED, true};
    return (struct vow__verdict){VOW_STATUS_SETTLED, false};
}
