/* SPDX-License-Identifier: MIT */
/* cas.c - opening, closing, and the steps of a store.
 *
 * HOW   vow__cas_step_start() puts a step into the lanes of the step; the head
 *       of all its lanes waits in a queue until fewer than CAS_ACTIVE_MAX steps
 *       of the class are under way; then a fiber runs the step. The end of the
 *       fiber puts step_finished() into the loop's queue: answers, and failures
 *       to start, come from the stack of the loop, and no answer is inside
 *       another step. A close answers all steps at once, and waits for their
 *       fibers: the service may still use the arguments.
 * THREADS  the thread of the loop.
 */
#include "store/cas/cas_internal.h"

static const vow_store_ops OPS; /* at the end */

static void step_enter(struct cas_step *step);
static void step_leave(struct cas_step *step);
static void start_steps(struct cas *s);
static void step_launch(struct cas_step *step);
static vow_next step_main(void *arg);
static void step_finished(void *user);
static void step_free(struct cas_step *step);
static void close_service(struct cas *s);
static void on_service_closed(void *user);
static void cas_free(struct cas *s);

struct cas *vow__cas_of(vow_store *s)
{
    return VOW__OUTER(s, struct cas, store);
}

uint64_t vow__cas_now_ns(const struct cas *s)
{
    return vow_loop_now_ns(s->loop);
}

/* ---- opening ------------------------------------------------------------- */

int vow__cas_open(vow_loop *loop, struct cas_service *service,
                  const struct cas_opts *opts, vow_store **ret_store)
{
    struct vow_alloc alloc = *vow_loop_alloc(loop);
    const struct cas_service_ops *ops = service->ops;
    struct cas *s = vow__mem_zero(&alloc, sizeof(*s));
    if (s == NULL)
        return VOW_ENOMEM;
    s->closed_future = vow_promise(loop, &s->closed);
    if (vow_state_of(s->closed_future) != VOW_PENDING) {
        vow_deferred_unref(s->closed);
        vow_future_unref(s->closed_future);
        vow__mem_free(&alloc, s, sizeof(*s));
        return VOW_ENOMEM;
    }
    s->loop = loop;
    s->alloc = alloc;
    s->service = service;
    s->flags = ops->flags;
    s->timeout_ns = opts->timeout_ms * 1000000;
    s->ops = OPS;
    s->ops.kind = ops->kind;
    s->ops.modes = ops->modes;
    s->ops.value_max = ops->value_max;
    s->ops.recheck_ms = ops->recheck_ms;
    if (ops->examine == NULL)
        s->ops.examine = NULL;
    s->store.ops = &s->ops;
    vow__table_init_hashed(&s->names, &s->alloc, vow_loop_random(loop));
    vow__table_init_hashed(&s->pools, &s->alloc, vow_loop_random(loop));
    *ret_store = &s->store;
    return 0;
}

static void cas_listen(vow_store *store, const vow_store_events *events)
{
    struct cas *s = vow__cas_of(store);
    struct cas_events mine = vow__cas_events;
    s->events = *events;
    mine.user = s;
    s->service->ops->listen(s->service, &mine);
}

/* ---- steps --------------------------------------------------------------- */

struct cas_step *vow__cas_step_new(struct cas *s,
                                   const struct cas_step_ops *ops,
                                   enum cas_class class, const vow_name *name)
{
    struct cas_step *step = vow__mem_zero(&s->alloc, ops->size);
    if (step == NULL)
        return NULL;
    if (name != NULL) {
        step->name = vow__cas_name_use(s, name);
        if (step->name == NULL) {
            vow__mem_free(&s->alloc, step, ops->size);
            return NULL;
        }
        step->lanes[0] = &step->name->lanes[class];
    }
    step->ops = ops;
    step->cas = s;
    step->class = class;
    step->due_ns = vow__cas_now_ns(s) + s->timeout_ns;
    s->steps++;
    vow__list_push(&s->all, &step->in_all);
    return step;
}

void vow__cas_step_start(struct cas_step *step)
{
    step_enter(step);
    start_steps(step->cas);
}

void vow__cas_step_start_with(struct cas_step *step, int code)
{
    step->code = code;
    vow__cas_step_start(step);
}

/* Enters the next lane, or waits there. */
static void step_enter(struct cas_step *step)
{
    while (step->entered < CAS_LANES) {
        struct cas_lane *lane = step->lanes[step->entered];
        if (lane != NULL && lane->active != NULL) {
            vow__list_push(&lane->queue, &step->link);
            return;
        }
        if (lane != NULL)
            lane->active = step;
        step->entered++;
    }
    vow__list_push(&step->cas->queue[step->class], &step->link);
}

/* Leaves all lanes to the steps behind. */
static void step_leave(struct cas_step *step)
{
    for (unsigned i = 0; i < CAS_LANES; i++) {
        struct cas_lane *lane = step->lanes[i];
        if (lane == NULL)
            continue;
        VOW__ASSERT(lane->active == step);
        vow_link *next = vow__list_take(&lane->queue);
        lane->active = NULL;
        if (next != NULL) {
            struct cas_step *head = VOW__OUTER(next, struct cas_step, link);
            lane->active = head;
            head->entered++;
            step_enter(head);
        }
    }
}

static void start_steps(struct cas *s)
{
    for (int class = 0; class < CAS_CLASSES; class ++)
        while (s->active[class] < CAS_ACTIVE_MAX && s->queue[class] != NULL)
            step_launch(VOW__OUTER(vow__list_take(&s->queue[class]),
                                   struct cas_step, link));
}

/* A step that does not begin ends from the loop's queue, too. */
static void step_launch(struct cas_step *step)
{
    struct cas *s = step->cas;
    s->active[step->class]++;
    if (step->answered) {
        step->code = VOW_ECLOSED;
    } else if (step->code == 0 && vow__cas_now_ns(s) >= step->due_ns) {
        step->code = VOW_ESTORE;
    } else if (step->code == 0) {
        VOW_AUTO(vow_future)
        fiber = vow_async(s->loop, step_main, step);
        if (vow_state_of(fiber) == VOW_REJECTED)
            step->code = vow_error_code(vow_error_of(fiber));
    }
    if (step->code != 0)
        vow_call_soon(&step->end, s->loop, step_finished, step);
}

static vow_next step_main(void *arg)
{
    struct cas_step *step = arg;
    step->code = step->ops->run(step);
    vow_call_soon(&step->end, step->cas->loop, step_finished, step);
    return vow_ok(vow_nothing());
}

/* The answer may start steps, and may close the store. */
static void step_finished(void *user)
{
    struct cas_step *step = user;
    struct cas *s = step->cas;
    s->active[step->class]--;
    step_leave(step);
    if (!step->answered && step->ops->answer != NULL) {
        step->answered = true;
        step->ops->answer(step, step->code);
    }
    step_free(step);
    start_steps(s);
    close_service(s);
}

static void step_free(struct cas_step *step)
{
    struct cas *s = step->cas;
    if (step->ops->fini != NULL)
        step->ops->fini(step);
    if (step->name != NULL)
        vow__cas_name_drop(step->name);
    vow__list_remove(&s->all, &step->in_all);
    s->steps--;
    vow__mem_free(&s->alloc, step, step->ops->size);
}

/* ---- closing ------------------------------------------------------------- */

static vow_future *cas_close(vow_store *store)
{
    struct cas *s = vow__cas_of(store);
    vow_future *closed = vow_future_ref(s->closed_future);
    VOW__ASSERT(!s->closing);
    s->closing = true;
    (void)vow_call_stop(&s->expire);
    vow__cas_stay(s); /* the answers must not end the close */
    for (vow_link *l = s->all; l != NULL; l = l->next) {
        struct cas_step *step = VOW__OUTER(l, struct cas_step, in_all);
        if (!step->answered && step->ops->answer != NULL) {
            step->answered = true;
            step->ops->answer(step, VOW_ECLOSED);
        }
    }
    vow__cas_orphans_close(s);
    vow__cas_pools_close(s);
    vow__cas_leave(s);
    return closed;
}

void vow__cas_stay(struct cas *s)
{
    s->steps++;
}

void vow__cas_leave(struct cas *s)
{
    VOW__ASSERT(s->steps > 0);
    s->steps--;
    close_service(s);
}

/* Closes the service when the last step has ended. */
static void close_service(struct cas *s)
{
    if (!s->closing || s->closed_service || s->steps > 0)
        return;
    s->closed_service = true;
    s->service->ops->close(s->service, s->n_owned > 0, on_service_closed, s);
}

static void on_service_closed(void *user)
{
    struct cas *s = user;
    vow_deferred *closed = s->closed;
    cas_free(s);
    (void)vow_resolve_drop(closed, vow_nothing());
}

static void cas_free(struct cas *s)
{
    struct vow_alloc alloc = s->alloc;
    vow__cas_names_fini(s);
    vow__cas_pools_fini(s);
    vow__cas_leases_fini(s);
    vow_future_unref(s->closed_future);
    vow__mem_free(&alloc, s, sizeof(*s));
}

/* ---- the table ----------------------------------------------------------- */

static const char *cas_explain(vow_store *store)
{
    struct cas_service *service = vow__cas_of(store)->service;
    return service->ops->explain(service);
}

static void cas_examine(vow_store *store, vow_findings_fn done, void *user)
{
    struct cas_service *service = vow__cas_of(store)->service;
    service->ops->examine(service, done, user);
}

static const vow_store_ops OPS = {
    .version = VOW_STORE_VERSION,
    .flags = VOW_STORE_STARTS | VOW_STORE_REFRESHES,
    .listen = cas_listen,
    .claim = vow__cas_claim,
    .peek = vow__cas_peek,
    .pulse = vow__cas_pulse,
    .commit = vow__cas_commit,
    .forget = vow__cas_forget,
    .cancel = vow__cas_cancel,
    .list = vow__cas_list,
    .write = vow__cas_write,
    .read = vow__cas_read,
    .acquire = vow__cas_acquire,
    .release = vow__cas_release,
    .renew = vow__cas_renew,
    .limit = vow__cas_limit,
    .pools = vow__cas_pools,
    .explain = cas_explain,
    .examine = cas_examine,
    .close = cas_close,
};
