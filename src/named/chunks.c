/* SPDX-License-Identifier: MIT */
/* chunks.c - results in chunks, for waiters that follow the run.
 *
 * HOW   An entry keeps the chunks of the current run, of this or of another
 *       process. Each following waiter has the number of the next chunk; a
 *       call from the loop's queue delivers the chunks. Chunks of another
 *       process are read from the store after an event and after every claim.
 *       A new run starts with new chunks.
 * LIMITS  All chunks of a run stay until the run is over. At the end, a
 *         follower of another process may miss the last chunks: the result has
 *         them.
 * THREADS  the hub's loop; vow_lease_write() and chunk_receive(): the waiter's
 *          loop.
 */
#include "base/alloc.h"
#include "named/named_internal.h"

#include <string.h>

enum { CHUNKS_FIRST_ROOM = 8 };

/* A chunk on the way to the hub's loop, or to a waiter of another loop. */
struct chunk_message {
    struct vow_alloc alloc;
    vow_lease *lease;                 /* writer, counted; or NULL */
    struct vow__named_waiter *waiter; /* receiver, counted; or NULL */
    vow_bytes *chunk;                 /* NULL: the run begins again */
    struct vow__named_settler settler;
};

static bool waiter_follows(const struct vow__named_waiter *w);
static bool chunk_deliver_next(struct vow__named_entry *e);
static void chunk_deliver(struct vow__named_waiter *w, vow_bytes *chunk);
static void chunk_receive(void *chunk_message);
static void on_chunks_read(int code, vow_bytes *const *chunks, size_t n,
                           uint64_t next, void *entry);
static struct chunk_message *chunk_message_new(const struct vow_alloc *alloc,
                                               vow_bytes *chunk);
static void chunk_message_free(struct chunk_message *p);
static void chunk_write_on_hub(void *chunk_message);
static void on_chunk_written(int code, const vow_record *r, size_t n,
                             void *chunk_message);

static bool waiter_follows(const struct vow__named_waiter *w)
{
    return (w->opts->flags & VOW_SHARE_FOLLOW) != 0 &&
           w->opts->on_chunk != NULL;
}

void vow__named_chunks_follow(struct vow__named_entry *e,
                              struct vow__named_waiter *w)
{
    if (!waiter_follows(w))
        return;
    e->followed = true;
    if (w->next_chunk < e->n_chunks && !vow_call_pending(&e->pump))
        vow_call_soon(&e->pump, vow__named_entry_hub(e)->loop,
                      vow__named_chunks_pump, e);
}

int vow__named_chunks_add(struct vow__named_entry *e, vow_bytes *chunk)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    if (e->n_chunks == e->room_chunks) {
        size_t room =
            e->room_chunks == 0 ? CHUNKS_FIRST_ROOM : 2 * e->room_chunks;
        vow_bytes **more = vow__mem_new(&h->alloc, room * sizeof(*more));
        if (more == NULL)
            return VOW_ENOMEM;
        if (e->n_chunks > 0)
            memcpy(more, e->chunks, e->n_chunks * sizeof(*more));
        vow__mem_free(&h->alloc, e->chunks, e->room_chunks * sizeof(*more));
        e->chunks = more;
        e->room_chunks = room;
    }
    e->chunks[e->n_chunks++] = vow_bytes_ref(chunk);
    if (e->followed && !vow_call_pending(&e->pump))
        vow_call_soon(&e->pump, h->loop, vow__named_chunks_pump, e);
    return 0;
}

void vow__named_chunks_drop(struct vow__named_entry *e)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    for (size_t i = 0; i < e->n_chunks; i++)
        vow_bytes_unref(e->chunks[i]);
    vow__mem_free(&h->alloc, e->chunks, e->room_chunks * sizeof(*e->chunks));
    e->chunks = NULL;
    e->n_chunks = e->room_chunks = 0;
    e->chunks_from = 0;
    (void)vow_call_stop(&e->pump);
    vow_link *l = e->waiters;
    while (l != NULL) {
        struct vow__named_waiter *w = vow__named_waiter_of(l);
        l = l->next;
        if (w->next_chunk > 0) {
            w->next_chunk = 0;
            chunk_deliver(w, NULL);
            l = e->waiters; /* user code may have changed the list */
        }
    }
}

/* Delivers all chunks. User code may close the authority: keeps the entry. */
void vow__named_chunks_pump(void *entry)
{
    struct vow__named_entry *e = entry;
    e->steps++;
    while (chunk_deliver_next(e))
        ;
    e->steps--;
    if (e->state == ENTRY_NEW && e->n_waiters == 0 && e->steps == 0)
        vow__named_entry_free(e);
}

/* Delivers one chunk and returns whether a waiter lacked one. User code may
 * change the list, so the caller starts over. */
static bool chunk_deliver_next(struct vow__named_entry *e)
{
    for (vow_link *l = e->waiters; l != NULL; l = l->next) {
        struct vow__named_waiter *w = vow__named_waiter_of(l);
        if (!waiter_follows(w) || w->next_chunk >= e->n_chunks ||
            (e->lease != NULL && e->lease->waiter == w))
            continue;
        VOW_AUTO(vow_bytes) chunk = vow_bytes_ref(e->chunks[w->next_chunk++]);
        chunk_deliver(w, chunk);
        return true;
    }
    return false;
}

static void chunk_deliver(struct vow__named_waiter *w, vow_bytes *chunk)
{
    if (vow__named_is_hub_loop(w->handle)) {
        w->opts->on_chunk(chunk, w->opts->user);
        return;
    }
    struct chunk_message *p = chunk_message_new(&w->handle->alloc, chunk);
    if (p != NULL) {
        (void)vow__named_waiter_ref(w);
        p->waiter = w;
        if (vow_loop_post(w->handle->loop, chunk_receive, p) == 0)
            return;
        chunk_message_free(p);
    }
    w->next_chunk = SIZE_MAX; /* no chunks are better than a gap */
}

static void chunk_receive(void *chunk_message)
{
    struct chunk_message *p = chunk_message;
    if (!p->waiter->left)
        p->waiter->opts->on_chunk(p->chunk, p->waiter->opts->user);
    chunk_message_free(p);
}

/* ---- from another process ----------------------------------------------- */

void vow__named_chunks_changed(const vow_name *name, void *hub)
{
    struct vow__named_entry *e = vow__named_entry_find(hub, name, false);
    if (e != NULL)
        vow__named_chunks_read(e);
}

void vow__named_chunks_read(struct vow__named_entry *e)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    if (!e->followed || e->reading || e->state != ENTRY_WAITING)
        return;
    if (e->chunks_epoch != e->epoch)
        vow__named_chunks_clear(e);
    e->chunks_epoch = e->epoch;
    e->reading = true;
    e->steps++;
    vow__named_step_begins(h);
    h->store->ops->read(h->store, &e->name, e->epoch, e->chunks_from,
                        on_chunks_read, e);
}

static void on_chunks_read(int code, vow_bytes *const *chunks, size_t n,
                           uint64_t next, void *entry)
{
    struct vow__named_entry *e = entry;
    e->reading = false;
    e->steps--;
    vow__named_step_ended(vow__named_entry_hub(e),
                          code == VOW_ENOENT ? 0 : code);
    if (e->state == ENTRY_NEW && e->n_waiters == 0 && e->steps == 0) {
        vow__named_entry_free(e); /* the run was over before this read */
        return;
    }
    if (code != 0 || e->chunks_epoch != e->epoch)
        return;
    size_t before = e->n_chunks;
    for (size_t i = 0; i < n; i++) {
        if (vow__named_chunks_add(e, chunks[i]) == 0)
            continue;
        while (e->n_chunks > before) /* the next read gets all of them */
            vow_bytes_unref(e->chunks[--e->n_chunks]);
        return;
    }
    e->chunks_from = next;
    if (n > 0)
        vow__named_chunks_read(e);
}

/* ---- from the runner of this process ------------------------------------ */

vow_future *vow_lease_write(vow_lease *l, vow_bytes *chunk)
{
    VOW__ASSERT_THREAD(l->loop);
    struct vow__named_hub *h = l->hub;
    (void)vow_lease_pulse(l);
    struct chunk_message *p =
        chunk_message_new(&l->waiter->handle->alloc, chunk);
    if (p == NULL)
        return vow_refused(l->loop, VOW_ENOMEM, NULL);
    vow_future *f =
        vow__named_settler_open(l->waiter->site, l->loop, h->loop, &p->settler);
    vow__named_lease_hold(l);
    p->lease = l;
    int rc = vow_error_code(vow_error_of(f));
    if (rc == 0)
        rc = vow__named_hub_run(l->waiter->handle, chunk_write_on_hub, p);
    if (rc < 0) {
        chunk_message_free(p);
        vow_future_unref(f);
        return vow_refused(l->loop, rc, NULL);
    }
    return f;
}

static void chunk_write_on_hub(void *chunk_message)
{
    struct chunk_message *p = chunk_message;
    vow_lease *l = p->lease;
    struct vow__named_hub *h = l->hub;
    struct vow__named_entry *e = l->entry;
    int rc = e == NULL ? VOW_ELOST : vow__named_chunks_add(e, p->chunk);
    bool stays = l->alone || l->chunks_stopped ||
                 (rc == 0 && (h->store->ops->flags & VOW_STORE_LOCAL) != 0);
    if (rc < 0)
        vow__named_settler_refuse(&p->settler, rc, NULL);
    else if (stays)
        vow__named_settler_resolve(&p->settler, vow_nothing());
    if (rc < 0 || stays) {
        chunk_message_free(p);
        return;
    }
    vow_hold hold = {.name = e->name,
                     .token = l->token,
                     .epoch = atomic_load(&l->epoch),
                     .mode = e->mode};
    vow__named_step_begins(h);
    h->store->ops->write(h->store, &hold, e->chunks_written++, p->chunk,
                         on_chunk_written, p);
}

/* LOST: another runner has the name, or the record has vanished. A pulse makes
 * the record of shared work again, so for shared work the pulse decides. */
static void on_chunk_written(int code, const vow_record *r, size_t n,
                             void *chunk_message)
{
    struct chunk_message *p = chunk_message;
    vow_lease *l = p->lease;
    bool lost = code == 0 && n == 1 && r->status == VOW_STATUS_LOST;
    bool shared = l->entry != NULL && l->entry->mode == VOW_SHARED;
    vow__named_step_ended(l->hub, code);
    l->chunks_stopped = l->chunks_stopped || code != 0 || lost;
    if (lost && shared)
        vow__named_pulse_soon(l);
    else if (lost)
        vow__named_lease_lose(l, "another runner has taken over the name");
    if (lost && !shared)
        vow__named_settler_refuse(&p->settler, VOW_ELOST, NULL);
    else /* followers may miss the chunk; the result has all */
        vow__named_settler_resolve(&p->settler, vow_nothing());
    chunk_message_free(p);
}

static struct chunk_message *chunk_message_new(const struct vow_alloc *alloc,
                                               vow_bytes *chunk)
{
    struct chunk_message *p = vow__mem_zero(alloc, sizeof(*p));
    if (p == NULL)
        return NULL;
    p->alloc = *alloc;
    p->chunk = vow_bytes_ref(chunk);
    return p;
}

static void chunk_message_free(struct chunk_message *p)
{
    struct vow_alloc alloc = p->alloc;
    vow__named_settler_drop(&p->settler);
    vow_bytes_unref(p->chunk);
    if (p->waiter != NULL)
        vow__named_waiter_unref(p->waiter);
    if (p->lease != NULL)
        vow__named_lease_release(p->lease);
    vow__mem_free(&alloc, p, sizeof(*p));
}
