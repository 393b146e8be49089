/* SPDX-License-Identifier: MIT */
/* file_peer.c - noticing at once that another process has died.
 *
 * HOW   Who waits for an instance has a pidfd of its process, which libuv
 *       polls. When that ends, the lock is looked at, which decides: a number
 *       may have been given to another process meanwhile. Then all names that
 *       we wait for and it owned can be claimed, and its permits are released.
 *       A watch lasts as long as it is asked for again, at least once in
 *       IDLE_US: who waits looks again more often than that.
 * LIMITS  PEERS_MAX at a time. For others, and for processes that our namespace
 *       does not show, the next look is what notices.
 * THREADS  loop thread only.
 */
#include "store/file/file_rows.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PEERS_MAX = 128, IDLE_US = 2000 * 1000 };

struct vow__file_peer {
    vow_link link;
    struct vow__file *store;
    unsigned char id[FILE_ID];
    int pidfd;
    int64_t asked_us;
    uv_poll_t poll;
};

struct death {
    const unsigned char *id;
    struct vow__buf names; /* that we wait for and it owned */
    bool permits;
};

static struct vow__file_peer *peer_find(struct vow__file *s,
                                        const unsigned char *id);
static struct vow__file_peer *peer_open(struct vow__file *s,
                                        const unsigned char *id, pid_t pid);
static void peer_close(struct vow__file_peer *p);
static void drop_idle(struct vow__file *s);
static void on_closed(uv_handle_t *handle);
static void on_end(uv_poll_t *poll, int status, int events);
static void bereaved(struct vow__file *s, const unsigned char *id);
static int death_step(struct vow__file *s, void *arg);

void vow__file_watch(struct vow__file *s, const unsigned char *id)
{
    pid_t pid = 0;
    if (memcmp(id, &s->process, sizeof(s->process)) == 0 || s->closing != NULL)
        return;
    struct vow__file_peer *p = peer_find(s, id);
    if (p == NULL) {
        drop_idle(s);
        if (s->n_peers >= PEERS_MAX || vow__file_gone_pid(s, id, &pid) ||
            pid <= 0)
            return;
        p = peer_open(s, id, pid);
    }
    if (p != NULL)
        p->asked_us = s->now_us;
}

static struct vow__file_peer *peer_find(struct vow__file *s,
                                        const unsigned char *id)
{
    for (vow_link *l = s->peers; l != NULL; l = l->next) {
        struct vow__file_peer *p = VOW__OUTER(l, struct vow__file_peer, link);
        if (memcmp(p->id, id, FILE_ID) == 0)
            return p;
    }
    return NULL;
}

/* NULL: it cannot be watched, or it is dead and the next look will tell. */
static struct vow__file_peer *peer_open(struct vow__file *s,
                                        const unsigned char *id, pid_t pid)
{
    pid_t same = 0;
    struct vow__file_peer *p = vow__mem_zero(&s->alloc, sizeof(*p));
    if (p == NULL)
        return NULL;
    p->store = s;
    memcpy(p->id, id, FILE_ID);
    p->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (p->pidfd < 0)
        goto fail;
    if (vow__file_gone_pid(s, id, &same) || same != pid)
        goto fail_pidfd;
    if (uv_poll_init(vow_loop_uv(s->loop), &p->poll, p->pidfd) < 0)
        goto fail_pidfd;
    p->poll.data = p;
    (void)uv_poll_start(&p->poll, UV_READABLE, on_end);
    uv_unref((uv_handle_t *)&p->poll);
    vow__list_push(&s->peers, &p->link);
    s->n_peers++;
    s->handles++;
    return p;

fail_pidfd:
    (void)close(p->pidfd);
fail:
    vow__mem_free(&s->alloc, p, sizeof(*p));
    return NULL;
}

static void peer_close(struct vow__file_peer *p)
{
    struct vow__file *s = p->store;
    vow__list_remove(&s->peers, &p->link);
    s->n_peers--;
    (void)uv_poll_stop(&p->poll);
    uv_close((uv_handle_t *)&p->poll, on_closed);
    (void)close(p->pidfd);
}

static void on_closed(uv_handle_t *handle)
{
    struct vow__file_peer *p = handle->data;
    struct vow__file *s = p->store;
    vow__mem_free(&s->alloc, p, sizeof(*p));
    vow__file_handle_closed(s);
}

static void drop_idle(struct vow__file *s)
{
    vow_link *next;
    for (vow_link *l = s->peers; l != NULL; l = next) {
        struct vow__file_peer *p = VOW__OUTER(l, struct vow__file_peer, link);
        next = l->next;
        if (p->asked_us + IDLE_US < s->now_us)
            peer_close(p);
    }
}

void vow__file_unwatch_all(struct vow__file *s)
{
    while (s->peers != NULL)
        peer_close(VOW__OUTER(s->peers, struct vow__file_peer, link));
}

/* ---- a death ------------------------------------------------------------ */

static void on_end(uv_poll_t *poll, int status, int events)
{
    struct vow__file_peer *p = poll->data;
    struct vow__file *s = p->store;
    unsigned char id[FILE_ID];
    (void)status;
    (void)events;
    memcpy(id, p->id, FILE_ID);
    peer_close(p);
    if (s->dir >= 0 && vow__file_gone(s, id))
        bereaved(s, id);
}

static void bereaved(struct vow__file *s, const unsigned char *id)
{
    struct death d = {.id = id};
    vow__buf_init(&d.names, &s->alloc, FILE_BUF_MAX);
    int code = vow__file_step(s, VOW__FILE_READ, death_step, &d);
    size_t n = code == 0 ? d.names.n / sizeof(vow_name) : 0;
    for (size_t i = 0; i < n && s->events.on_record != NULL; i++) {
        vow_record r = {.status = 0, .label = "", .runner = ""};
        memcpy(&r.name, d.names.bytes + i * sizeof(vow_name), sizeof(vow_name));
        s->events.on_record(&r, s->events.user);
    }
    vow__buf_fini(&d.names);
    if (code == 0 && d.permits)
        vow__file_bury(s, id);
}

static int death_step(struct vow__file *s, void *arg)
{
    struct death *d = arg;
    vow_name pool = {.hash = {0}};
    int rc;
    vow__buf_clear(&d->names);
    sqlite3_stmt *q =
        vow__file_sql(s, "SELECT w.h FROM wait w CROSS JOIN rec r ON r.h=w.h"
                         " WHERE w.inst=?1 AND r.inst=?2");
    vow__file_bind(q, 1, s->id, FILE_ID);
    vow__file_bind(q, 2, d->id, FILE_ID);
    while (vow__file_row(s, q, &rc)) {
        void *at = vow__buf_push(&d->names, sizeof(vow_name));
        if (at != NULL) /* else the next look tells */
            vow__file_bytes_read(q, 0, at, sizeof(vow_name));
    }
    if (rc != 0)
        return rc;
    return vow__file_permits_find(s, d->id, &pool, &d->permits);
}
