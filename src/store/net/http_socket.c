/* SPDX-License-Identifier: MIT */
/* http_socket.c - libcurl's descriptors and times on our loop.
 *
 * WHY   libcurl waits for nothing itself here: it says which descriptors it
 *       wants to hear of, and when it wants to be called.
 * HOW   A uv_poll_t for each descriptor. libcurl lets go of a connection after
 *       each request and takes it again for the next; its handle stays, for
 *       without that two calls of the system would go with each. What is heard
 *       and not wanted is not waited for any more then. libcurl tells when it
 *       closes a connection that was in use. It does not when it closes one
 *       that never came about, and the next may have the same number: handles
 *       are kept only from the first request on. A request whose connection was
 *       lost before anything left is connected anew, and that one may not come
 *       about either. A handle that outlived its descriptor would make libuv
 *       abort.
 *       Its times are real ones, also under virtual time: they are its own
 *       business (how long one address is tried before the next). "At once" is
 *       the next turn.
 *       While libcurl works all signals are blocked, for the threads that it
 *       starts: they take none of ours.
 * LIMITS  no handle keeps the loop running.
 * THREADS  loop thread only.
 */
#include "store/net/http_internal.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int on_wish(CURL *easy, curl_socket_t fd, int what, void *user,
                   void *nothing);
static int on_time(CURLM *multi, long ms, void *user);
static void act(struct vow__http *h, curl_socket_t fd, int events);
static void on_timer(uv_timer_t *timer);
static void on_timer_closed(uv_handle_t *handle);
static struct vow__http_watcher *watcher_new(struct vow__http *h, int fd);
static struct vow__http_watcher *watcher_find(const struct vow__http *h,
                                              int fd);
static void nudge(struct vow__http *h);
static void want(struct vow__http_watcher *w, int events);
static void watch(struct vow__http_watcher *w, int events);
static void on_socket(uv_poll_t *poll, int status, int events);
static void watcher_close(struct vow__http_watcher *w);
static void on_watcher_closed(uv_handle_t *handle);

int vow__http_sockets_open(struct vow__http *h)
{
    (void)curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, on_wish);
    (void)curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
    (void)curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, on_time);
    (void)curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
    int rc = uv_timer_init(vow_loop_uv(h->loop), &h->timer);
    if (rc < 0)
        return rc;
    h->timer.data = h;
    h->handles++;
    uv_unref((uv_handle_t *)&h->timer);
    return 0;
}

/* The multi handle is gone, and the connections with it. */
void vow__http_sockets_close(struct vow__http *h)
{
    while (h->watchers != NULL)
        watcher_close(VOW__OUTER(h->watchers, struct vow__http_watcher, link));
    uv_close((uv_handle_t *)&h->timer, on_timer_closed);
}

static void on_timer_closed(uv_handle_t *handle)
{
    vow__http_handle_gone(handle->data);
}

void vow__http_work(struct vow__http *h)
{
    bool kick = h->kick;
    h->kick = false;
    if (kick || h->nudge)
        act(h, CURL_SOCKET_TIMEOUT, 0);
}

/* For a descriptor, or for what is due. */
static void act(struct vow__http *h, curl_socket_t fd, int events)
{
    sigset_t all;
    int running;
    bool nudge = h->nudge;
    h->nudge = false;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &h->signals);
    if (nudge)
        (void)curl_multi_socket_all(h->multi, &running);
    (void)curl_multi_socket_action(h->multi, fd, events, &running);
    (void)pthread_sigmask(SIG_SETMASK, &h->signals, NULL);
}

/* ---- times -------------------------------------------------------------- */

static int on_time(CURLM *multi, long ms, void *user)
{
    struct vow__http *h = user;
    (void)multi;
    h->kick = ms == 0;
    if (ms > 0) {
        (void)uv_timer_start(&h->timer, on_timer, (uint64_t)ms, 0);
        return 0;
    }
    (void)uv_timer_stop(&h->timer);
    if (h->kick)
        vow__http_turn_soon(h);
    return 0;
}

static void on_timer(uv_timer_t *timer)
{
    struct vow__http *h = timer->data;
    if (h->multi == NULL)
        return;
    act(h, CURL_SOCKET_TIMEOUT, 0);
    vow__http_collect(h);
}

/* ---- descriptors -------------------------------------------------------- */

/* Here the bits of libcurl are those of libuv. */
_Static_assert((int)CURL_POLL_IN == (int)UV_READABLE &&
                   (int)CURL_POLL_OUT == (int)UV_WRITABLE,
               "what is wanted has other bits");
_Static_assert((int)CURL_CSELECT_IN == (int)UV_READABLE &&
                   (int)CURL_CSELECT_OUT == (int)UV_WRITABLE,
               "what is heard has other bits");

static int on_wish(CURL *easy, curl_socket_t fd, int what, void *user,
                   void *nothing)
{
    struct vow__http *h = user;
    struct vow__http_watcher *w = watcher_find(h, fd);
    struct vow__http_request *r = NULL;
    (void)nothing;
    if (w != NULL && w->kept) {
        want(w, what == CURL_POLL_REMOVE ? 0 : what);
        return 0;
    }
    (void)curl_easy_getinfo(easy, CURLINFO_PRIVATE, &r);
    if (what == CURL_POLL_REMOVE) {
        if (w != NULL)
            watcher_close(w);
        if (r != NULL && r->state == VOW__HTTP_RUNS && !r->settled)
            nudge(h);
        return 0;
    }
    VOW__ASSERT(r != NULL);
    if (w == NULL)
        w = watcher_new(h, fd);
    if (w == NULL) {
        vow__http_fail(r, VOW_ENOMEM);
        return 0;
    }
    w->kept = r->settled;
    want(w, what);
    return 0;
}

/* An address did not answer. Of itself libcurl would try the next one only at
 * its next time, which may be too late. */
static void nudge(struct vow__http *h)
{
    h->nudge = true;
    vow__http_turn_soon(h);
}

static void want(struct vow__http_watcher *w, int events)
{
    w->wanted = events;
    if ((events & ~w->started) != 0 ||
        (events != 0 && (w->started & ~events & UV_WRITABLE) != 0))
        watch(w, events);
}

static struct vow__http_watcher *watcher_find(const struct vow__http *h, int fd)
{
    for (vow_link *l = h->watchers; l != NULL; l = l->next) {
        struct vow__http_watcher *w =
            VOW__OUTER(l, struct vow__http_watcher, link);
        if (w->fd == fd)
            return w;
    }
    return NULL;
}

static struct vow__http_watcher *watcher_new(struct vow__http *h, int fd)
{
    struct vow__http_watcher *w = vow__mem_zero(&h->alloc, sizeof(*w));
    if (w == NULL)
        return NULL;
    if (uv_poll_init(vow_loop_uv(h->loop), &w->poll, fd) < 0) {
        vow__mem_free(&h->alloc, w, sizeof(*w));
        return NULL;
    }
    uv_unref((uv_handle_t *)&w->poll);
    w->poll.data = w;
    w->http = h;
    w->fd = fd;
    h->handles++;
    vow__list_push(&h->watchers, &w->link);
    return w;
}

static void watch(struct vow__http_watcher *w, int events)
{
    w->started = events;
    if (events == 0)
        (void)uv_poll_stop(&w->poll);
    else
        (void)uv_poll_start(&w->poll, events, on_socket);
}

/* On an error of the socket libuv stops the handle: libcurl finds out what it
 * is. */
static void on_socket(uv_poll_t *poll, int status, int events)
{
    struct vow__http_watcher *w = poll->data;
    struct vow__http *h = w->http;
    int heard = events & w->wanted;
    if (status < 0) {
        w->started = 0;
        heard = w->wanted == 0 ? 0 : w->wanted | CURL_CSELECT_ERR;
    }
    if (heard != 0) {
        act(h, w->fd, heard);
        vow__http_collect(h);
    }
    if (w->closed)
        return;
    if (heard == 0 || w->started == 0)
        watch(w, w->wanted);
}

static void watcher_close(struct vow__http_watcher *w)
{
    w->closed = true;
    vow__list_remove(&w->http->watchers, &w->link);
    uv_close((uv_handle_t *)&w->poll, on_watcher_closed);
}

static void on_watcher_closed(uv_handle_t *handle)
{
    struct vow__http_watcher *w = handle->data;
    struct vow__http *h = w->http;
    vow__mem_free(&h->alloc, w, sizeof(*w));
    vow__http_handle_gone(h);
}

/* ---- sockets of connections --------------------------------------------- */

/* The number may be that of one that was closed without a word: then libcurl
 * thinks that what it wanted of that one is waited for. */
curl_socket_t vow__http_socket_open(void *user, curlsocktype purpose,
                                    struct curl_sockaddr *address)
{
    struct vow__http_request *r = user;
    (void)purpose; /* there is one */
    r->settled = false;
    int fd = socket(address->family,
                    address->socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                    address->protocol);
    struct vow__http_watcher *old = watcher_find(r->http, fd);
    if (fd < 0 || old == NULL)
        return fd;
    int wanted = old->wanted;
    watcher_close(old);
    struct vow__http_watcher *w = watcher_new(r->http, fd);
    if (w == NULL) {
        (void)close(fd);
        vow__http_fail(r, VOW_ENOMEM);
        return CURL_SOCKET_BAD;
    }
    w->wanted = wanted;
    watch(w, wanted);
    return fd;
}

int vow__http_socket_close(void *user, curl_socket_t fd)
{
    struct vow__http_watcher *w = watcher_find(user, fd);
    if (w != NULL)
        watcher_close(w);
    return close(fd);
}
