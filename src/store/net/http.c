/* SPDX-License-Identifier: MIT */
/* http.c - the life of requests by HTTP.
 *
 *     WAITS -> READY -> RUNS -> told, IDLE
 *       \________\________\___ canceled, too late, closed: DROPPED, IDLE
 *
 * WHY   A store speaks to a server by many small requests at once, and needs to
 *       know of each that has no answer whether it may have been heard.
 * HOW   libcurl's multi interface on our loop (http_socket.c). A request is
 *       begun in the next turn of the loop, so that nothing is called inside a
 *       call of ours; at most `connections` of them are with libcurl, others
 *       wait here, where nothing of them can have been sent. Times are those of
 *       the loop's clock, not of libcurl's; a process that was stopped does not
 *       take that for the server's fault. While it works libcurl refuses most
 *       calls; so one that ends early is only marked, told, and taken from
 *       libcurl in the next turn. What is needed for a request, a handle of
 *       libcurl's above all, is kept for the next.
 * INVARIANTS
 *   H1  done is called once, or the request was canceled
 *   H2  a request is in the list of its state, and in no other
 *   H3  the memory goes from a call of libuv's, when all handles are gone
 * LIMITS  requests that wait are not counted: each has a time limit. Open
 *       streams and idle connections do not keep the loop running; requests
 *       with a time limit do, and under virtual time it stands for them. What
 *       libcurl allocates does not come through the allocator.
 * THREADS  loop thread only; libcurl looks names up on threads of its own.
 */
#include "store/net/http_internal.h"

#include "base/clock.h"
#include "store/net/stream.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { IDLE_MAX = 16, STALLED_MS = 250 };

static int check_files(vow_loop *loop, const struct vow__http_opts *o,
                       char *why, size_t why_size);
static int prepare(struct vow__http *h, const struct vow__http_opts *o);
static CURLM *open_multi(void);
static int copy_text(struct vow__http *h, const char *text, char **ret_copy);
static void destroy(struct vow__http *h);
static void text_free(struct vow__http *h, char *text);
static struct vow__http_request *take(struct vow__http *h);
static void hold(struct vow__http_request *r);
static void let_go(struct vow__http_request *r);
static void enlist(struct vow__http_request *r);
static void on_turn(void *user);
static void clean(struct vow__http *h);
static void begin(struct vow__http_request *r);
static uint64_t due_ns(const struct vow__http_request *r);
static void on_late(void *user);
static void begin_time_anew(struct vow__http_request *r);
static void finish(struct vow__http_request *r, CURLcode result);
static void end_early(struct vow__http_request *r,
                      const struct vow__http_answer *answer);
static void detach(struct vow__http_request *r);
static void give_place(struct vow__http *h);
static void recycle(struct vow__http_request *r);
static vow_link **list_of(struct vow__http_request *r);
static void move(struct vow__http_request *r, enum vow__http_state to);
static struct vow__http_request *outer(vow_link *l);
static void fit_cache(struct vow__http *h);

/* ---- opening and closing ------------------------------------------------ */

int vow__http_open(vow_loop *loop, const struct vow__http_opts *opts,
                   struct vow__http **ret_http, char *why, size_t why_size)
{
    int rc = vow__curl_load(why, why_size);
    if (rc == 0)
        rc = check_files(loop, opts, why, why_size);
    if (rc < 0)
        return rc;
    struct vow__http *h = vow__mem_zero(vow_loop_alloc(loop), sizeof(*h));
    rc = VOW_ENOMEM;
    if (h != NULL) {
        h->loop = loop;
        h->alloc = *vow_loop_alloc(loop);
        rc = prepare(h, opts);
    }
    if (rc < 0) {
        (void)snprintf(why, why_size, "%s", vow_error_text(rc));
        destroy(h);
        return rc;
    }
    *ret_http = h;
    return 0;
}

/* libcurl reads them again for each connection; what is wrong with them is told
 * here, in our words. */
static int check_files(vow_loop *loop, const struct vow__http_opts *o,
                       char *why, size_t why_size)
{
    struct vow__tls *tls;
    struct vow__tls_opts files = {.ca_file = o->ca_file,
                                  .cert_file = o->cert_file,
                                  .key_file = o->key_file};
    if (o->ca_file == NULL && o->cert_file == NULL && o->key_file == NULL)
        return 0;
    int rc = vow__tls_new(loop, &files, &tls, why, why_size);
    if (rc == 0)
        (void)vow__tls_unref(tls);
    return rc;
}

static int prepare(struct vow__http *h, const struct vow__http_opts *o)
{
    h->connections = o->connections == 0 ? 1 : o->connections;
    h->connect_ms = o->connect_ms;
    if (copy_text(h, o->ca_file, &h->ca_file) < 0 ||
        copy_text(h, o->cert_file, &h->cert_file) < 0 ||
        copy_text(h, o->key_file, &h->key_file) < 0)
        return VOW_ENOMEM;
    h->multi = open_multi();
    if (h->multi == NULL)
        return VOW_ENOMEM;
    fit_cache(h);
    return vow__http_sockets_open(h);
}

/* The pair of sockets that libcurl wakes itself by would be inherited by what
 * we execute. It has the numbers that a pair before it had, unless another
 * thread was faster: then that one's socket is not inherited, which it should
 * not be either. */
static CURLM *open_multi(void)
{
    int pair[2];
    bool known = pipe2(pair, O_CLOEXEC) == 0;
    if (known) {
        (void)close(pair[0]);
        (void)close(pair[1]);
    }
    CURLM *multi = curl_multi_init();
    for (int i = 0; i < 2 && known; i++) {
        struct stat is;
        if (fstat(pair[i], &is) == 0 && S_ISSOCK(is.st_mode))
            (void)fcntl(pair[i], F_SETFD, FD_CLOEXEC);
    }
    return multi;
}

static int copy_text(struct vow__http *h, const char *text, char **ret_copy)
{
    if (text == NULL)
        return 0;
    size_t size = strlen(text) + 1;
    *ret_copy = vow__mem_new(&h->alloc, size);
    if (*ret_copy == NULL)
        return VOW_ENOMEM;
    memcpy(*ret_copy, text, size);
    return 0;
}

/* Connections that streams use count among those that libcurl keeps. */
static void fit_cache(struct vow__http *h)
{
    (void)curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS,
                            (long)(2 * h->connections + h->streams));
}

void vow__http_close(struct vow__http *h, void (*done)(void *user), void *user)
{
    if (h == NULL)
        return;
    VOW__ASSERT(!h->closing);
    h->closing = true;
    h->on_closed = done;
    h->on_closed_user = user;
    const struct vow__http_answer closed = {.code = VOW_ECLOSED,
                                            .why = vow_error_text(VOW_ECLOSED)};
    vow_link **lists[] = {&h->running, &h->ready, &h->waiting};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        while (*lists[i] != NULL)
            end_early(outer(*lists[i]), &closed);
    vow__http_turn_soon(h);
}

static void clean(struct vow__http *h)
{
    while (h->idle != NULL) {
        struct vow__http_request *r = outer(vow__list_take(&h->idle));
        vow__http_request_free(r);
    }
    (void)curl_multi_cleanup(h->multi);
    h->multi = NULL;
    (void)vow_call_stop(&h->turn); /* libcurl has stopped its timer */
    vow__http_sockets_close(h);
}

void vow__http_handle_gone(struct vow__http *h)
{
    VOW__ASSERT(h->handles > 0);
    if (--h->handles > 0 || !h->closing)
        return;
    void (*done)(void *user) = h->on_closed;
    void *user = h->on_closed_user;
    destroy(h); /* keeps H3 */
    done(user);
}

static void destroy(struct vow__http *h)
{
    if (h == NULL)
        return;
    struct vow_alloc alloc = h->alloc;
    if (h->multi != NULL)
        (void)curl_multi_cleanup(h->multi);
    text_free(h, h->ca_file);
    text_free(h, h->cert_file);
    text_free(h, h->key_file);
    vow__mem_free(&alloc, h, sizeof(*h));
}

static void text_free(struct vow__http *h, char *text)
{
    if (text != NULL)
        vow__mem_free(&h->alloc, text, strlen(text) + 1);
}

/* ---- a request ---------------------------------------------------------- */

struct vow__http_request *vow__http_post(struct vow__http *h,
                                         const struct vow__http_ask *ask,
                                         vow__http_fn done, void *user)
{
    struct vow__http_request *r = h->closing ? NULL : take(h);
    if (r == NULL)
        return NULL;
    r->done = done;
    r->user = user;
    if (vow__http_request_fill(r, ask) < 0) {
        recycle(r);
        return NULL;
    }
    r->deadline_ns = r->timeout_ms == 0
                         ? UINT64_MAX
                         : vow_loop_due_ns(h->loop, r->timeout_ms);
    r->allowed_ms = r->timeout_ms;
    if (r->timeout_ms > 0 || r->part_ms > 0)
        hold(r);
    enlist(r);
    return r;
}

static void hold(struct vow__http_request *r)
{
    r->held = true;
    if (r->http->awaited++ == 0)
        vow_loop_hold(r->http->loop);
}

static void let_go(struct vow__http_request *r)
{
    if (r->held && --r->http->awaited == 0)
        vow_loop_release(r->http->loop);
    r->held = false;
}

static struct vow__http_request *take(struct vow__http *h)
{
    if (h->idle == NULL)
        return vow__http_request_new(h);
    h->n_idle--;
    return outer(vow__list_take(&h->idle));
}

static void enlist(struct vow__http_request *r)
{
    struct vow__http *h = r->http;
    r->state = VOW__HTTP_READY;
    r->connect_ns = UINT64_MAX;
    if (r->stream) {
        h->streams++;
        fit_cache(h);
    } else if (h->busy < h->connections) {
        h->busy++;
    } else {
        r->state = VOW__HTTP_WAITS;
    }
    vow__list_push(list_of(r), &r->link);
    if (r->timeout_ms > 0)
        vow_call_at(&r->late, h->loop, r->deadline_ns, on_late, r);
    if (r->state == VOW__HTTP_READY)
        vow__http_turn_soon(h);
}

void vow__http_cancel(struct vow__http_request *r)
{
    if (r == NULL || r->state == VOW__HTTP_IDLE ||
        r->state == VOW__HTTP_DROPPED)
        return; /* it is being told just now */
    detach(r);
}

/* ---- a turn ------------------------------------------------------------- */

void vow__http_turn_soon(struct vow__http *h)
{
    if (!vow_call_pending(&h->turn))
        vow_call_soon(&h->turn, h->loop, on_turn, h);
}

static void on_turn(void *user)
{
    struct vow__http *h = user;
    while (h->dropped != NULL) {
        struct vow__http_request *r = outer(vow__list_take(&h->dropped));
        (void)curl_multi_remove_handle(h->multi, r->easy);
        recycle(r);
    }
    if (h->closing) {
        clean(h);
        return;
    }
    while (h->ready != NULL)
        begin(outer(h->ready));
    vow__http_work(h);
    vow__http_collect(h);
}

static void begin(struct vow__http_request *r)
{
    struct vow__http *h = r->http;
    move(r, VOW__HTTP_RUNS);
    uint64_t part_ns = vow_loop_due_ns(h->loop, r->part_ms);
    if (r->part_ms > 0 && part_ns < r->deadline_ns) {
        r->deadline_ns = part_ns;
        r->allowed_ms = r->part_ms;
    }
    if (h->connect_ms > 0)
        r->connect_ns = vow_loop_due_ns(h->loop, h->connect_ms);
    if (due_ns(r) != UINT64_MAX)
        vow_call_at(&r->late, h->loop, due_ns(r), on_late, r);
    if (curl_multi_add_handle(h->multi, r->easy) != CURLM_OK)
        vow__http_fail(r, VOW_ENOMEM);
}

/* The next time that something must have happened by. */
static uint64_t due_ns(const struct vow__http_request *r)
{
    return r->begun || r->deadline_ns < r->connect_ns ? r->deadline_ns
                                                      : r->connect_ns;
}

void vow__http_heard(struct vow__http_request *r)
{
    if (r->timeout_ms > 0 || r->code != 0)
        return;
    r->deadline_ns = UINT64_MAX;
    (void)vow_call_stop(&r->late);
    let_go(r);
}

void vow__http_fail(struct vow__http_request *r, int code)
{
    if (r->state != VOW__HTTP_RUNS)
        return;
    r->code = code;
    vow_call_soon(&r->late, r->http->loop, on_late, r);
}

static void on_late(void *user)
{
    struct vow__http_request *r = user;
    uint64_t now = vow_loop_now_ns(r->http->loop);
    char why[VOW__HTTP_WHY];
    if (r->code != 0) {
        int code = vow__http_explain(r, CURLE_OK, why, sizeof(why));
        end_early(r, &(struct vow__http_answer){.code = code, .why = why});
        return;
    }
    if (vow__http_forgive(r->http->loop, due_ns(r), &r->forgiven))
        begin_time_anew(r);
    if (now < due_ns(r)) { /* it was connected in time */
        if (due_ns(r) != UINT64_MAX)
            vow_call_at(&r->late, r->http->loop, due_ns(r), on_late, r);
        return;
    }
    if (r->state != VOW__HTTP_RUNS)
        (void)snprintf(why, sizeof(why),
                       "no connection to %s was free within %llu ms", r->shown,
                       (unsigned long long)r->timeout_ms);
    else
        (void)snprintf(
            why, sizeof(why), "%s did not answer within %llu ms", r->shown,
            (unsigned long long)(now < r->deadline_ns ? r->http->connect_ms
                                                      : r->allowed_ms));
    int code = vow__http_request_sent(r) ? VOW_EUNSURE : VOW_ESTORE;
    end_early(
        r, &(struct vow__http_answer){.code = code, .late = true, .why = why});
}

/* The answer may be there already, and not read. */
static void begin_time_anew(struct vow__http_request *r)
{
    vow_loop *loop = r->http->loop;
    if (r->deadline_ns != UINT64_MAX)
        r->deadline_ns = vow_loop_due_ns(loop, r->allowed_ms);
    if (r->connect_ns != UINT64_MAX)
        r->connect_ns = vow_loop_due_ns(loop, r->http->connect_ms);
}

bool vow__http_forgive(const vow_loop *loop, uint64_t due_ns, bool *forgiven)
{
    uint64_t now = vow_loop_now_ns(loop);
    bool stalled =
        now >= due_ns && (now - due_ns) / VOW__NS_PER_MS >= STALLED_MS;
    bool first = stalled && !*forgiven;
    *forgiven |= stalled;
    return first;
}

/* ---- the end ------------------------------------------------------------ */

void vow__http_collect(struct vow__http *h)
{
    CURLMsg *m;
    int left;
    while (!h->closing && (m = curl_multi_info_read(h->multi, &left)) != NULL) {
        struct vow__http_request *r;
        CURLcode result = m->data.result;
        (void)curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &r);
        if (m->msg == CURLMSG_DONE && r->state == VOW__HTTP_RUNS)
            finish(r, result);
    }
}

static void finish(struct vow__http_request *r, CURLcode result)
{
    char why[VOW__HTTP_WHY];
    long status = 0;
    struct vow__http_answer a = {.body = r->answer.bytes, .size = r->answer.n};
    (void)curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &status);
    a.status = (unsigned)status;
    if (result != CURLE_OK || r->code != 0) {
        a = (struct vow__http_answer){.why = why};
        a.code = vow__http_explain(r, result, why, sizeof(why));
        a.late = result == CURLE_OPERATION_TIMEDOUT;
    }
    (void)curl_multi_remove_handle(r->http->multi, r->easy);
    move(r, VOW__HTTP_IDLE);
    r->done(&a, r->user); /* keeps H1 */
    recycle(r);
}

static void end_early(struct vow__http_request *r,
                      const struct vow__http_answer *answer)
{
    vow__http_fn done = r->done;
    void *user = r->user;
    detach(r);
    done(answer, user); /* keeps H1 */
}

static void detach(struct vow__http_request *r)
{
    bool with_libcurl = r->state == VOW__HTTP_RUNS;
    move(r, with_libcurl ? VOW__HTTP_DROPPED : VOW__HTTP_IDLE);
    if (with_libcurl)
        vow__http_turn_soon(r->http);
    else
        recycle(r);
}

static void move(struct vow__http_request *r, enum vow__http_state to)
{
    struct vow__http *h = r->http;
    bool had_place = r->state != VOW__HTTP_WAITS;
    vow__list_remove(list_of(r), &r->link);
    r->state = (uint8_t)to;
    if (list_of(r) != NULL)
        vow__list_push(list_of(r), &r->link); /* keeps H2 */
    if (to == VOW__HTTP_READY || to == VOW__HTTP_RUNS)
        return;
    (void)vow_call_stop(&r->late);
    let_go(r);
    if (r->stream)
        h->streams--;
    else if (had_place)
        give_place(h);
}

static void give_place(struct vow__http *h)
{
    if (h->waiting == NULL || h->closing) {
        h->busy--;
        return;
    }
    move(outer(h->waiting), VOW__HTTP_READY);
    vow__http_turn_soon(h);
}

/* libcurl has let go of it. */
static void recycle(struct vow__http_request *r)
{
    struct vow__http *h = r->http;
    if (h->n_idle >= IDLE_MAX || h->closing) {
        vow__http_request_free(r);
        return;
    }
    vow__http_request_empty(r);
    r->state = VOW__HTTP_IDLE;
    h->n_idle++;
    vow__list_push(&h->idle, &r->link);
}

static vow_link **list_of(struct vow__http_request *r)
{
    switch (r->state) {
    case VOW__HTTP_WAITS:
        return &r->http->waiting;
    case VOW__HTTP_READY:
        return &r->http->ready;
    case VOW__HTTP_RUNS:
        return &r->http->running;
    case VOW__HTTP_DROPPED:
        return &r->http->dropped;
    default:
        return NULL; /* recycle() */
    }
}

static struct vow__http_request *outer(vow_link *l)
{
    return VOW__OUTER(l, struct vow__http_request, link);
}
