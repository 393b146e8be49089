/* SPDX-License-Identifier: MIT */
/* worker_die.h - a store that dies at a step: the part of worker.c that counts
 * steps, and kills the process before or after one of them. */
#ifndef WORKER_DIE_H
#define WORKER_DIE_H

static vow_store_ops deadly;
static const vow_store_ops *real_ops;
static char die_step[16];
static bool die_after;
static int die_number;

static void point(const char *step, bool after)
{
    if (die_after == after && strcmp(step, die_step) == 0 &&
        --die_number == 0) {
        note("dies %s %s", step, after ? "after" : "before");
        (void)kill(getpid(), SIGKILL);
    }
}

static void d_claim(vow_store *s, const vow_claim_request *a,
                    vow_records_fn done, void *user)
{
    point("claim", false);
    real_ops->claim(s, a, done, user);
    point("claim", true);
}

static void d_pulse(vow_store *s, const vow_hold *h, size_t n, uint64_t lease,
                    vow_records_fn done, void *user)
{
    point("pulse", false);
    real_ops->pulse(s, h, n, lease, done, user);
    point("pulse", true);
}

static void d_commit(vow_store *s, const vow_commit_request *a,
                     vow_records_fn done, void *user)
{
    point("commit", false);
    real_ops->commit(s, a, done, user);
    point("commit", true);
}

static void d_acquire(vow_store *s, const vow_permit_request *a,
                      vow_permits_fn done, void *user)
{
    point("acquire", false);
    real_ops->acquire(s, a, done, user);
    point("acquire", true);
}

static void d_release(vow_store *s, const vow_permit_hold *h,
                      vow_permits_fn done, void *user)
{
    point("release", false);
    real_ops->release(s, h, done, user);
    point("release", true);
}

static void d_renew(vow_store *s, const vow_permit_hold *h, size_t n,
                    uint64_t lease, vow_permits_fn done, void *user)
{
    point("renew", false);
    real_ops->renew(s, h, n, lease, done, user);
    point("renew", true);
}

static void make_deadly(vow_store *s)
{
    char when[8] = "";
    const char *at = getenv("VOW_DIE_AT");
    if (at == NULL)
        return;
    if (sscanf(at, "%15[^:]:%7[^:]:%d", die_step, when, &die_number) != 3)
        exit(2);
    die_after = strcmp(when, "after") == 0;
    real_ops = s->ops;
    deadly = *s->ops;
    deadly.claim = d_claim;
    deadly.pulse = d_pulse;
    deadly.commit = d_commit;
    deadly.acquire = d_acquire;
    deadly.release = d_release;
    deadly.renew = d_renew;
    s->ops = &deadly;
}

#endif
