/* SPDX-License-Identifier: MIT */
/* etcd_lease.c - leases of etcd, one for many keys.
 *
 * WHY   A lease of etcd costs a round trip to make and one to keep alive. Many
 *       names of a process must not cost more than one.
 * HOW   One lease for each length, of the whole seconds above it and one more.
 *       It lives at least its ttl from the moment the last request that was
 *       answered was sent. So for some time behind each keepalive, a second or
 *       more, there is no less left of it than was asked for: uses within that
 *       time cost nothing, the next one asks for a keepalive, and those that
 *       come meanwhile share it.
 *       Nothing keeps a lease alive by itself: each use promises its length
 *       and no more. An owner pulses, a place is renewed and who waits claims
 *       again, each within its own length, and each is a use.
 *       The id of a lease is chosen here. A grant without an answer may have
 *       taken place: the keepalive of that id tells. A keepalive without a ttl
 *       says that the lease is gone, with all that hung on it; another is
 *       granted, and the transactions of those who use it tell what is left.
 *       Who waits for a request has a time of its own, and is told when that is
 *       over; the request goes on.
 *       Leases for results are the same, but never kept alive: when too little
 *       is left of one, another is granted.
 *       Who closes the store and owns nothing revokes them all, but for those
 *       of results: many short processes would leave many. Else what a lease
 *       has left is what it promised.
 * INVARIANTS
 *   L1  of a lease there is at most one request under way
 *   L2  who waits for a lease, waits for a request that is under way
 * LIMITS  The longest lease is that of etcd, 285 years. A length that was used
 *         is remembered until the end, one for results some seconds.
 * THREADS  loop thread only.
 */
#include "base/clock.h"
#include "base/table.h"
#include "store/etcd/etcd_internal.h"

#include <inttypes.h>
#include <sodium.h>

enum {
    UNSURE_MAX = 3, /* requests without an answer, one at once behind another */
    SLACK_MS = 2000 /* how long a lease for results is remembered */
};
static const uint64_t SECONDS_MAX = 9000000000; /* etcd takes no more */

struct vow__etcd_leases {
    struct vow__etcd *etcd;
    vow_loop *loop;
    struct vow_alloc alloc;
    struct vow__table lengths; /* struct lease */
    vow_link *old;             /* those for results, the oldest grant first */
    vow_link *ready;           /* struct use, answered by `soon` */
    vow_call soon;
    size_t leaving; /* revocations without an answer */
    void (*left)(struct vow__etcd *e);
};

struct length {
    uint64_t seconds;
    uint64_t once; /* 1: for results, never kept alive */
};

enum { IDLE, GRANTS, RENEWS };

struct lease {
    struct vow__table_node named; /* its name is `length` */
    struct length length;
    struct vow__etcd_leases *all;
    vow_link link;     /* of old */
    vow_link *uses;    /* struct use, for the request under way */
    int64_t id;        /* 0: none */
    uint64_t ttl_ms;   /* as etcd said; 0: it is not known to be granted */
    uint64_t sent_ns;  /* of the last request that was answered */
    uint64_t asked_ns; /* of that under way */
    uint64_t first_ns; /* and of the first that it repeats */
    unsigned unsure;   /* requests before it without an answer */
    uint8_t state;
    bool lost; /* while it was asked for, somebody was told that it is gone */
};

struct use {
    vow_link link;
    vow_call late; /* while it waits for a request */
    struct lease *lease;
    uint64_t asked_ns;
    uint64_t ms;     /* it is to live from then on */
    uint64_t due_ns; /* when it is answered at the latest */
    bool forgiven;   /* that began anew once */
    vow__lease_fn done;
    void *user;
    int code; /* what is answered */
    int64_t id;
};

static void on_revoked(struct vow__etcd *e, int code, const json_t *root,
                       void *leases);
static void ask(struct vow__etcd *e, const struct use *ask, bool once);
static void on_late(void *user);
static bool is_fresh(const struct lease *x, uint64_t asked_ns, uint64_t ms);
static uint64_t now_ns(const struct vow__etcd_leases *l);
static void answer_soon(struct vow__etcd_leases *l, struct use *u, int64_t id);
static void on_soon(void *user);
static void answer_all(struct vow__etcd_leases *l, vow_link *uses);
static struct length length_of(uint64_t ms, bool once);
static struct lease *lease_find(struct vow__etcd_leases *l, uint64_t ms,
                                bool once);
static struct lease *lease_new(struct vow__etcd_leases *l, uint64_t ms,
                               bool once);
static void lease_free(struct lease *x);
static void forget_old(struct vow__etcd_leases *l);
static void request(struct lease *x);
static void grant(struct lease *x);
static void on_grant(struct vow__etcd *e, int code, const json_t *root,
                     void *user);
static void renew(struct lease *x);
static void on_renewed(struct vow__etcd *e, int code, const json_t *root,
                       void *user);
static bool believe(struct lease *x, const json_t *said);
static void forget_id(struct lease *x);
static void finish(struct lease *x, int code);
static void set_aside(struct lease *x, int code, vow_link **done);

/* ---- opening and closing ------------------------------------------------- */

int vow__leases_open(struct vow__etcd *e, struct vow__etcd_leases **ret_leases)
{
    struct vow_alloc alloc = *vow__etcd_alloc(e);
    struct vow__etcd_leases *l = vow__mem_zero(&alloc, sizeof(*l));
    if (l == NULL)
        return VOW_ENOMEM;
    l->etcd = e;
    l->loop = vow__etcd_loop(e);
    l->alloc = alloc;
    vow__table_init(&l->lengths, &l->alloc, vow_loop_random(l->loop));
    *ret_leases = l;
    return 0;
}

void vow__leases_revoke(struct vow__etcd *e, void (*done)(struct vow__etcd *e))
{
    struct vow__etcd_leases *l = vow__etcd_leases(e);
    struct vow__table_node *n = NULL;
    l->left = done;
    l->leaving = 1; /* until all are sent */
    while ((n = vow__table_next(&l->lengths, n)) != NULL) {
        const struct lease *x = VOW__OUTER(n, struct lease, named);
        struct vow__jot body;
        if (x->id == 0 || x->length.once != 0)
            continue;
        vow__jot_init(&body, &l->alloc);
        vow__jot_print(&body, "{\"ID\":\"%" PRId64 "\"}", x->id);
        l->leaving++;
        vow__etcd_call(e, "lease/revoke", &body, on_revoked, l);
    }
    on_revoked(e, 0, NULL, l);
}

/* If it was not heard, the lease ends by itself. */
static void on_revoked(struct vow__etcd *e, int code, const json_t *root,
                       void *leases)
{
    struct vow__etcd_leases *l = leases;
    (void)code;
    (void)root;
    if (--l->leaving == 0)
        l->left(e);
}

/* All calls have ended: nobody waits for anything. */
void vow__leases_close(struct vow__etcd_leases *l)
{
    struct vow_alloc alloc = l->alloc;
    struct vow__table_node *n;
    VOW__ASSERT(l->ready == NULL);
    while ((n = vow__table_next(&l->lengths, NULL)) != NULL)
        lease_free(VOW__OUTER(n, struct lease, named));
    vow__table_fini(&l->lengths);
    vow__mem_free(&alloc, l, sizeof(*l));
}

/* ---- using one ----------------------------------------------------------- */

void vow__lease_use(struct vow__etcd *e, uint64_t lease_ms, uint64_t due_ns,
                    vow__lease_fn done, void *user)
{
    const struct use use = {
        .ms = lease_ms, .due_ns = due_ns, .done = done, .user = user};
    ask(e, &use, false);
}

void vow__lease_once(struct vow__etcd *e, uint64_t ttl_ms, uint64_t due_ns,
                     vow__lease_fn done, void *user)
{
    const struct use use = {
        .ms = ttl_ms, .due_ns = due_ns, .done = done, .user = user};
    ask(e, &use, true);
}

int64_t vow__lease_ready(struct vow__etcd *e, uint64_t lease_ms)
{
    struct vow__etcd_leases *l = vow__etcd_leases(e);
    struct lease *x = lease_find(l, lease_ms, false);
    if (x == NULL || vow__etcd_closing(e))
        return 0;
    return is_fresh(x, now_ns(l), lease_ms) ? x->id : 0;
}

static void ask(struct vow__etcd *e, const struct use *ask, bool once)
{
    struct vow__etcd_leases *l = vow__etcd_leases(e);
    bool none = once ? ask->ms == UINT64_MAX : ask->ms == 0;
    int code = vow__etcd_closing(e) ? VOW_ECLOSED : VOW_ENOMEM;
    struct use *u = NULL;
    struct lease *x = NULL;
    if (code == VOW_ENOMEM)
        u = vow__mem_new(&l->alloc, sizeof(*u));
    if (u != NULL && !none)
        x = lease_new(l, ask->ms, once);
    if (u == NULL || (x == NULL && !none)) {
        vow__mem_free(&l->alloc, u, sizeof(*u));
        ask->done(e, code, 0, ask->user);
        return;
    }
    *u = *ask;
    u->asked_ns = now_ns(l);
    if (none || is_fresh(x, u->asked_ns, u->ms)) {
        answer_soon(l, u, none ? 0 : x->id);
        return;
    }
    u->lease = x;
    if (u->due_ns == 0)
        u->due_ns = vow_loop_due_ns(l->loop, vow__etcd_where_of(e)->timeout_ms);
    /* A moment behind the request, which may know more. */
    vow_call_at(&u->late, l->loop, u->due_ns + VOW__NS_PER_MS, on_late, u);
    vow__list_push(&x->uses, &u->link);
    if (x->state == IDLE)
        request(x); /* keeps L2 */
}

/* The request goes on: it may be of use to the next. */
static void on_late(void *user)
{
    struct use *u = user;
    struct vow__etcd_leases *l = u->lease->all;
    vow_link *one = NULL;
    if (vow__http_forgive(l->loop, u->due_ns, &u->forgiven)) {
        u->due_ns =
            vow_loop_due_ns(l->loop, vow__etcd_where_of(l->etcd)->timeout_ms);
        vow_call_at(&u->late, l->loop, u->due_ns + VOW__NS_PER_MS, on_late, u);
        return;
    }
    vow__list_remove(&u->lease->uses, &u->link);
    u->code = VOW_ESTORE;
    u->id = 0;
    vow__etcd_late(l->etcd);
    vow__list_push(&one, &u->link);
    answer_all(l, one);
}

/* Whether it lives for so long from then on. */
static bool is_fresh(const struct lease *x, uint64_t asked_ns, uint64_t ms)
{
    if (x->ttl_ms == 0 || x->lost)
        return false;
    if (x->sent_ns >= asked_ns)
        return true;
    uint64_t passed_ms =
        (asked_ns - x->sent_ns + VOW__NS_PER_MS - 1) / VOW__NS_PER_MS;
    return passed_ms <= x->ttl_ms && ms <= x->ttl_ms - passed_ms;
}

/* A machine that slept has lost its leases. */
static uint64_t now_ns(const struct vow__etcd_leases *l)
{
    if ((vow_loop_flags(l->loop) & VOW_LOOP_VIRTUAL_TIME) != 0)
        return vow_loop_now_ns(l->loop);
    return vow__clock_boot_ns();
}

static void answer_soon(struct vow__etcd_leases *l, struct use *u, int64_t id)
{
    u->code = 0;
    u->id = id;
    vow__list_push(&l->ready, &u->link);
    vow_call_soon(&l->soon, l->loop, on_soon, l);
}

static void on_soon(void *user)
{
    struct vow__etcd_leases *l = user;
    vow_link *uses = l->ready;
    l->ready = NULL;
    answer_all(l, uses);
}

static void answer_all(struct vow__etcd_leases *l, vow_link *uses)
{
    while (uses != NULL) {
        struct use u = *VOW__OUTER(uses, struct use, link);
        vow_link *gone = vow__list_take(&uses);
        vow__mem_free(&l->alloc, VOW__OUTER(gone, struct use, link), sizeof(u));
        if (vow__etcd_closing(l->etcd))
            u.done(l->etcd, VOW_ECLOSED, 0, u.user);
        else
            u.done(l->etcd, u.code, u.id, u.user);
    }
}

/* ---- those that are known ------------------------------------------------ */

static struct length length_of(uint64_t ms, bool once)
{
    uint64_t seconds = ms / 1000 + (ms % 1000 != 0) + 1;
    if (seconds > SECONDS_MAX)
        seconds = SECONDS_MAX;
    return (struct length){.seconds = seconds, .once = once};
}

static struct lease *lease_find(struct vow__etcd_leases *l, uint64_t ms,
                                bool once)
{
    struct length length = length_of(ms, once);
    struct vow__table_node *n =
        vow__table_find(&l->lengths, (const char *)&length, sizeof(length));
    return n == NULL ? NULL : VOW__OUTER(n, struct lease, named);
}

/* The one that is there, or another. NULL: no memory. */
static struct lease *lease_new(struct vow__etcd_leases *l, uint64_t ms,
                               bool once)
{
    struct lease *x = lease_find(l, ms, once);
    if (x != NULL)
        return x;
    forget_old(l);
    x = vow__mem_zero(&l->alloc, sizeof(*x));
    if (x == NULL)
        return NULL;
    x->all = l;
    x->length = length_of(ms, once);
    x->named.name = (const char *)&x->length;
    x->named.length = sizeof(x->length);
    if (vow__table_add(&l->lengths, &x->named) < 0) {
        vow__mem_free(&l->alloc, x, sizeof(*x));
        return NULL;
    }
    if (once)
        vow__list_push(&l->old, &x->link);
    return x;
}

static void lease_free(struct lease *x)
{
    struct vow__etcd_leases *l = x->all;
    VOW__ASSERT(x->uses == NULL);
    vow__table_remove(&l->lengths, &x->named);
    if (x->length.once != 0)
        vow__list_remove(&l->old, &x->link);
    vow__mem_free(&l->alloc, x, sizeof(*x));
}

/* Nobody can use them any more. */
static void forget_old(struct vow__etcd_leases *l)
{
    uint64_t slack_ns = (uint64_t)SLACK_MS * VOW__NS_PER_MS;
    while (l->old != NULL) {
        struct lease *x = VOW__OUTER(l->old, struct lease, link);
        if (x->state != IDLE || now_ns(l) - x->sent_ns < slack_ns)
            return;
        lease_free(x);
    }
}

/* Who was told knows of several leases, and not which of them it was: names may
 * hang on the others. */
void vow__lease_lost(struct vow__etcd *e, int64_t lease)
{
    struct vow__etcd_leases *l = vow__etcd_leases(e);
    struct vow__table_node *n = vow__table_next(&l->lengths, NULL);
    while (n != NULL && VOW__OUTER(n, struct lease, named)->id != lease)
        n = vow__table_next(&l->lengths, n);
    if (n == NULL || lease == 0)
        return;
    struct lease *x = VOW__OUTER(n, struct lease, named);
    if (x->state != IDLE)
        x->lost = true; /* what is answered may be older */
    else if (x->length.once != 0)
        forget_id(x);
    else
        x->ttl_ms = 0;
}

static void forget_id(struct lease *x)
{
    x->id = 0;
    x->ttl_ms = 0;
    x->lost = false;
}

/* ---- requests ------------------------------------------------------------ */

/* Keeps L1. */
static void request(struct lease *x)
{
    VOW__ASSERT(x->state == IDLE);
    x->asked_ns = now_ns(x->all);
    if (x->unsure == 0)
        x->first_ns = x->asked_ns;
    if (x->id == 0 || x->length.once != 0)
        grant(x);
    else
        renew(x);
}

static void grant(struct lease *x)
{
    struct vow__jot body;
    uint64_t id;
    forget_id(x);
    randombytes_buf(&id, sizeof(id));
    x->id = (int64_t)(id >> 1) | 1;
    x->state = GRANTS;
    vow__jot_init(&body, &x->all->alloc);
    vow__jot_print(&body, "{\"TTL\":\"%" PRIu64 "\",\"ID\":\"%" PRId64 "\"}",
                   x->length.seconds, x->id);
    vow__etcd_call(x->all->etcd, "lease/grant", &body, on_grant, x);
}

/* Without an answer it may be granted, and the next request is a keepalive
 * that tells. */
static void on_grant(struct vow__etcd *e, int code, const json_t *root,
                     void *user)
{
    struct lease *x = user;
    x->state = IDLE;
    if (code == 0 && !believe(x, root)) {
        vow__etcd_trouble(e, "etcd grants leases in a way that is not known");
        code = VOW_ESTORE;
    }
    if (code != 0 && code != VOW_EUNSURE && code != VOW_ECLOSED)
        forget_id(x);
    if (code == 0 && x->length.once != 0) {
        vow__list_remove(&x->all->old, &x->link);
        vow__list_push(&x->all->old, &x->link);
    }
    finish(x, code);
}

static void renew(struct lease *x)
{
    struct vow__jot body;
    x->state = RENEWS;
    vow__jot_init(&body, &x->all->alloc);
    vow__jot_print(&body, "{\"ID\":\"%" PRId64 "\"}", x->id);
    vow__etcd_call(x->all->etcd, "lease/keepalive", &body, on_renewed, x);
}

static void on_renewed(struct vow__etcd *e, int code, const json_t *root,
                       void *user)
{
    struct lease *x = user;
    (void)e;
    x->state = IDLE;
    if (code == 0 && !believe(x, json_object_get(root, "result")))
        code = VOW_ENOENT;
    bool again = code == 0 && x->lost;
    if (code == VOW_ENOENT)
        forget_id(x);
    else if (x->lost)
        x->ttl_ms = 0;
    x->lost = false;
    if (again || code == VOW_ENOENT)
        request(x);
    else
        finish(x, code);
}

/* What it said, if that is a lease which lives. */
static bool believe(struct lease *x, const json_t *said)
{
    uint64_t seconds = vow__json_uint(said, "TTL");
    uint64_t id = vow__json_uint(said, "ID");
    if (seconds == 0 || id != (uint64_t)x->id)
        return false;
    x->ttl_ms = 1000 * (seconds < SECONDS_MAX ? seconds : SECONDS_MAX);
    x->sent_ns = x->asked_ns;
    return true;
}

/* Those who wait are answered, or wait for another request. Nothing hangs on a
 * lease yet that was not told: what is unsure of it did not take place. */
static void finish(struct lease *x, int code)
{
    struct vow__etcd_leases *l = x->all;
    uint64_t patience_ms = vow__etcd_where_of(l->etcd)->timeout_ms;
    uint64_t passed_ns = now_ns(l) - x->first_ns;
    vow_link *done = NULL;
    if (code == VOW_EUNSURE && ++x->unsure < UNSURE_MAX &&
        passed_ns / VOW__NS_PER_MS < patience_ms) {
        request(x);
        return;
    }
    x->unsure = 0;
    set_aside(x, code == VOW_EUNSURE ? VOW_ESTORE : code, &done);
    if (x->uses != NULL)
        request(x); /* keeps L2 */
    answer_all(l, done);
}

static void set_aside(struct lease *x, int code, vow_link **done)
{
    vow_link *uses = x->uses;
    x->uses = NULL;
    while (uses != NULL) {
        vow_link *link = vow__list_take(&uses);
        struct use *u = VOW__OUTER(link, struct use, link);
        u->code = code;
        u->id = code == 0 ? x->id : 0;
        if (code != 0 || is_fresh(x, u->asked_ns, u->ms)) {
            (void)vow_call_stop(&u->late);
            vow__list_push(done, link);
        } else {
            vow__list_push(&x->uses, link);
        }
    }
}
