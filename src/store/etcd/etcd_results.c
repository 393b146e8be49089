/* SPDX-License-Identifier: MIT */
/* etcd_results.c - long results, in another store.
 *
 * WHY   Etcd keeps every value in the memory of every member and takes no
 *       request above 1.5 MiB: results do not belong there. Who settled a name
 *       does.
 * HOW   The other store is a folder, or on Redis. The record in etcd has a
 *       ticket instead of the value: its size and hash. The value lies there
 *       under a name made of the prefix, the name, the epoch and the ticket:
 *       two who settle the same epoch do not meet, and which of them did is
 *       decided in etcd. What comes back is held against the ticket, so the
 *       other store need not be trusted with what a result is.
 * INVARIANTS
 *   R1  a job is answered exactly once, from the loop's queue or by the other
 *       store, and is gone then
 *   R2  no sentence has a password in it
 * LIMITS  A result of ttl 0 is kept there for a minute, others for a little
 *       longer than in etcd. When etcd's leader has changed they may last
 *       longer there: then it is told that the value is gone.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_internal.h"

#include "store/net/address.h"
#include "vow/fiber.h"
#include "vow/store_redis.h"
#include "vow/watch.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

enum {
    HASH = 32,
    TICKET_MAX = 20 + 1 + 2 * HASH + 1,
    WAITED_FOR_MS = 60000,
    LONGER_MS = 10000, /* leases of etcd end late */
    SHOWN_MAX = 200
};

struct vow__etcd_results {
    struct vow__etcd *etcd;
    struct vow_alloc alloc;
    vow_future *opening; /* NULL: there is no such store, or it is open */
    vow_store *store;    /* NULL: not yet */
    vow_link *jobs;      /* that wait for it to be open */
    vow_call soon;
    vow_watch opened;
    vow_watch closed;
    vow_future *leaving;
    char shown[SHOWN_MAX]; /* its address */
    void (*done)(struct vow__etcd *e);
};

struct job {
    vow_link link;
    struct vow__etcd_results *results;
    struct vow_alloc alloc;
    vow_name name; /* in the other store */
    vow_token token;
    uint64_t epoch;
    uint64_t ttl_ms;
    vow_bytes *bytes; /* to be put; or the ticket */
    bool puts;
    char ticket[TICKET_MAX]; /* of what is put */
    vow_deferred *end;       /* NULL: it has ended */
    bool left;               /* nobody waits any more */
    int code;
    vow_bytes *got; /* the ticket, or the value */
};

static int check_address(struct vow__etcd_results *r, const char *address);
static void show_results(struct vow__etcd_results *r, const char *address);
static bool is_folder(const char *address);
static void start(struct vow__etcd_results *r);
static vow_future *open_results(vow_loop *loop, const char *url);
static void on_opened(vow_future *settled, void *user);
static void refuse_all(struct vow__etcd_results *r, int code);
static int unreadable(int code);
static void tell_nowhere(struct vow__etcd_results *r);
static struct job *job_new(struct vow__etcd *e, vow_bytes *bytes);
static int job_await(struct job *j, vow_bytes **ret_bytes);
static void job_free(struct job *j);
static vow_name name_of(const struct vow__etcd *e, const vow_name *name,
                        uint64_t epoch, vow_field ticket);
static void job_end(struct job *j, int code, vow_bytes *bytes);
static void on_soon(void *user);
static void begin(struct job *j);
static void begin_put(struct job *j);
static void on_put(int code, const vow_record *records, size_t n, void *user);
static void begin_get(struct job *j);
static void on_got(int code, const vow_record *records, size_t n, void *user);
static void on_given_back(int code, const vow_record *records, size_t n,
                          void *user);
static void gone(struct job *j);
static void print_ticket(vow_bytes *value, char text[TICKET_MAX]);
static void on_closed(vow_future *settled, void *user);
static void finish(struct vow__etcd_results *r);

/* ---- the other store ----------------------------------------------------- */

int vow__results_open(struct vow__etcd *e,
                      struct vow__etcd_results **ret_results)
{
    const struct vow_alloc *alloc = vow__etcd_alloc(e);
    struct vow__etcd_results *r = vow__mem_zero(alloc, sizeof(*r));
    if (r == NULL)
        return VOW_ENOMEM;
    r->etcd = e;
    r->alloc = *alloc;
    *ret_results = r;
    const char *address = vow__etcd_where_of(e)->results;
    return address == NULL ? 0 : check_address(r, address);
}

/* Whether it can be used is seen when it is; what can never be is told now. */
static int check_address(struct vow__etcd_results *r, const char *address)
{
    static const char *const kinds[] = {
        "file:",  "redis://",          "rediss://",
        "unix:",  "redis-sentinel://", "rediss-sentinel://",
        "memory:"};
    show_results(r, address);
    if (is_folder(address))
        return 0;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strncmp(address, kinds[i], strlen(kinds[i])) == 0)
            return 0;
    vow__etcd_trouble(r->etcd,
                      "results cannot be kept in %s: give a folder, or "
                      "redis://HOST",
                      r->shown);
    return VOW_EINVAL;
}

/* The hosts of a server alone: what is none may be a password at the wrong
 * place. Keeps R2. */
static void show_results(struct vow__etcd_results *r, const char *address)
{
    const char *behind = strstr(address, "://");
    struct vow__address a = {.alloc = r->alloc};
    struct vow__piece rest = vow__piece_of(behind == NULL ? "" : behind + 3);
    int n = behind == NULL ? (int)strcspn(address, ":") + 1
                           : (int)(behind + 3 - address);
    if (is_folder(address) || strncmp(address, "file:", 5) == 0) {
        (void)snprintf(r->shown, SHOWN_MAX, "%s", address);
    } else if (strncmp(address, "unix:/", 6) == 0) {
        (void)snprintf(r->shown, SHOWN_MAX, "%.*s", (int)strcspn(address, "?"),
                       address);
    } else if (behind == NULL || vow__address_hosts(&a, &rest) < 0) {
        (void)snprintf(r->shown, SHOWN_MAX, "%.*s...", n, address);
    } else {
        const char *at = memrchr(behind, '@', (size_t)(rest.at - behind));
        const char *hosts = at == NULL ? behind + 3 : at + 1;
        (void)snprintf(r->shown, SHOWN_MAX, "%.*s%.*s", n, address,
                       (int)strcspn(hosts, "?"), hosts);
    }
    vow__address_fini(&a);
}

static bool is_folder(const char *address)
{
    return address[0] == '/' || address[0] == '.' ||
           strchr(address, ':') == NULL;
}

/* It is opened when the first result goes there or comes from there. */
static void start(struct vow__etcd_results *r)
{
    const char *results = vow__etcd_where_of(r->etcd)->results;
    vow_loop *loop = vow__etcd_loop(r->etcd);
    struct vow__buf url;
    vow__etcd_buf_init(&url, &r->alloc);
    vow__buf_text(&url, is_folder(results) ? "file:" : "");
    vow__buf_add(&url, results, strlen(results) + 1);
    r->opening = url.code != 0 ? vow_refused(loop, VOW_ENOMEM, NULL)
                               : open_results(loop, url.bytes);
    vow__buf_fini(&url);
    vow_watch_start(&r->opened, r->opening, on_opened, r);
}

/* VOW_STORE_PASSWORD is that of etcd, and goes to no other server. */
static vow_future *open_results(vow_loop *loop, const char *url)
{
#ifdef VOW_HAVE_REDIS
    if (strncmp(url, "redis", 5) == 0 || strncmp(url, "unix:", 5) == 0)
        return vow_store_redis_open(loop, url,
                                    VOW_REDIS_OPTS(.no_environment = true));
#endif
    return vow_store_open(loop, url);
}

static void on_opened(vow_future *settled, void *user)
{
    struct vow__etcd_results *r = user;
    bool failed = vow_state_of(settled) != VOW_FULFILLED;
    if (failed)
        vow__etcd_trouble(r->etcd, "results cannot be kept in %s: %s", r->shown,
                          vow_error_message(vow_error_of(settled)));
    else
        r->store = vow_as_ptr(vow_get(settled));
    r->opening = vow_future_unref(r->opening);
    if (r->done != NULL)
        finish(r);
    else if (failed)
        refuse_all(r, VOW_ESTORE);
    else
        on_soon(r);
}

static void refuse_all(struct vow__etcd_results *r, int code)
{
    while (r->jobs != NULL) {
        struct job *j = VOW__OUTER(vow__list_take(&r->jobs), struct job, link);
        job_end(j, j->puts ? code : unreadable(code), NULL);
    }
}

/* Etcd is well, and so is the name: it is only that value. */
static int unreadable(int code)
{
    return code == VOW_ECLOSED || code == VOW_ENOMEM ? code : VOW_EIO;
}

/* ---- jobs ---------------------------------------------------------------- */

int vow__results_put(struct vow__etcd *e, const vow_commit_request *put,
                     vow_bytes **ret_ticket)
{
    struct job *j = job_new(e, put->value);
    if (j == NULL)
        return VOW_ENOMEM;
    print_ticket(put->value, j->ticket);
    j->name =
        name_of(e, &put->hold.name, put->hold.epoch, vow_field_text(j->ticket));
    j->puts = true;
    j->token = put->hold.token;
    j->epoch = put->hold.epoch;
    j->ttl_ms = put->ttl_ms > 0 ? put->ttl_ms : WAITED_FOR_MS;
    if (j->ttl_ms < UINT64_MAX - LONGER_MS)
        j->ttl_ms += LONGER_MS;
    return job_await(j, ret_ticket);
}

int vow__results_get(struct vow__etcd *e, const vow_name *name, uint64_t epoch,
                     vow_bytes *ticket, vow_bytes **ret_value)
{
    struct job *j = job_new(e, ticket);
    if (j == NULL)
        return VOW_ENOMEM;
    j->name =
        name_of(e, name, epoch,
                (vow_field){vow_bytes_data(ticket), vow_bytes_size(ticket)});
    randombytes_buf(&j->token, sizeof(j->token));
    return job_await(j, ret_value);
}

static struct job *job_new(struct vow__etcd *e, vow_bytes *bytes)
{
    struct vow__etcd_results *r = vow__etcd_results(e);
    struct job *j = vow__mem_zero(&r->alloc, sizeof(*j));
    if (j == NULL)
        return NULL;
    j->results = r;
    j->alloc = r->alloc;
    j->bytes = bytes == NULL ? NULL : vow_bytes_ref(bytes);
    return j;
}

/* The same on every machine. */
static vow_name name_of(const struct vow__etcd *e, const vow_name *name,
                        uint64_t epoch, vow_field ticket)
{
    char number[24];
    (void)snprintf(number, sizeof(number), "%llu", (unsigned long long)epoch);
    const vow_field fields[] = {
        vow_field_text("a result of"),
        vow_field_text(vow__etcd_where_of(e)->prefix),
        {name->hash, sizeof(name->hash)},
        vow_field_text(number),
        ticket,
    };
    return vow_name_make(NULL, fields, sizeof(fields) / sizeof(fields[0]));
}

/* Whoever a closing loop has woken leaves the job to its end. */
static int job_await(struct job *j, vow_bytes **ret_bytes)
{
    struct vow__etcd_results *r = j->results;
    vow_loop *loop = vow__etcd_loop(r->etcd);
    if (vow__etcd_closing(r->etcd)) {
        job_free(j);
        return VOW_ECLOSED;
    }
    vow_future *f = vow_promise(loop, &j->end);
    if (!vow_deferred_pending(j->end)) {
        (void)vow_error_of(f);
        vow_future_unref(f);
        vow_deferred_unref(j->end);
        job_free(j);
        return VOW_ENOMEM;
    }
    vow__list_push(&r->jobs, &j->link);
    vow_call_soon(&r->soon, loop, on_soon, r);
    (void)vow_await(f);
    vow_future_unref(f);
    if (j->end != NULL) {
        j->left = true;
        return VOW_ECLOSED;
    }
    int rc = j->code;
    if (rc == 0) {
        *ret_bytes = j->got;
        j->got = NULL;
    }
    job_free(j);
    return rc;
}

static void job_end(struct job *j, int code, vow_bytes *bytes)
{
    vow_deferred *end = j->end;
    j->end = NULL;
    j->code = code;
    j->got = bytes == NULL ? NULL : vow_bytes_ref(bytes);
    if (j->left)
        job_free(j); /* keeps R1 */
    (void)vow_resolve_drop(end, vow_nothing());
}

static void job_free(struct job *j)
{
    const struct vow_alloc alloc = j->alloc;
    vow_bytes_unref(j->bytes);
    vow_bytes_unref(j->got);
    vow__mem_free(&alloc, j, sizeof(*j));
}

static void on_soon(void *user)
{
    struct vow__etcd_results *r = user;
    if (r->jobs == NULL || r->opening != NULL)
        return;
    if (vow__etcd_where_of(r->etcd)->results == NULL) {
        tell_nowhere(r);
    } else if (r->store == NULL) {
        start(r);
    } else {
        while (r->jobs != NULL)
            begin(VOW__OUTER(vow__list_take(&r->jobs), struct job, link));
    }
}

/* What is there cannot be read, what is not is too big. */
static void tell_nowhere(struct vow__etcd_results *r)
{
    while (r->jobs != NULL) {
        struct job *j = VOW__OUTER(vow__list_take(&r->jobs), struct job, link);
        vow__etcd_trouble(r->etcd,
                          "a result of more than %zu bytes is not in etcd: "
                          "%s",
                          vow__etcd_where_of(r->etcd)->value_max,
                          vow__etcd_store(r->etcd)->ops->value_advice);
        job_end(j, j->puts ? VOW_E2BIG : VOW_EIO, NULL);
    }
}

static void begin(struct job *j)
{
    if (j->puts)
        begin_put(j);
    else
        begin_get(j);
}

/* ---- put ----------------------------------------------------------------- */

static void begin_put(struct job *j)
{
    vow_store *s = j->results->store;
    vow_commit_request ask = {
        .hold = {.name = j->name, .token = j->token, .epoch = j->epoch},
        .outcome = VOW_OUTCOME_DONE,
        .flags = VOW_COMMIT_PUT,
        .value = j->bytes,
        .ttl_ms = j->ttl_ms,
        .label = "a result"};
    if (vow_bytes_size(j->bytes) > s->ops->value_max) {
        vow__etcd_trouble(j->results->etcd,
                          "a result of %zu bytes is too long for %s, which "
                          "takes %zu",
                          vow_bytes_size(j->bytes), j->results->shown,
                          s->ops->value_max);
        job_end(j, VOW_E2BIG, NULL);
        return;
    }
    s->ops->commit(s, &ask, on_put, j);
}

/* What stands there already is the same. */
static void on_put(int code, const vow_record *records, size_t n, void *user)
{
    struct job *j = user;
    struct vow__etcd_results *r = j->results;
    VOW_AUTO(vow_bytes) ticket = NULL;
    (void)records;
    (void)n;
    if (code < 0 && r->store != NULL && code != VOW_ECLOSED)
        vow__etcd_trouble(r->etcd, "the result could not be kept in %s: %s",
                          r->shown, r->store->ops->explain(r->store));
    if (code == 0)
        code = vow_bytes_new(vow__etcd_loop(r->etcd), j->ticket,
                             strlen(j->ticket), &ticket);
    job_end(j, code, ticket);
}

static void print_ticket(vow_bytes *value, char text[TICKET_MAX])
{
    unsigned char hash[HASH];
    char hex[2 * HASH + 1];
    size_t size = vow_bytes_size(value);
    (void)crypto_generichash(hash, sizeof(hash), vow_bytes_data(value), size,
                             NULL, 0);
    (void)sodium_bin2hex(hex, sizeof(hex), hash, sizeof(hash));
    (void)snprintf(text, TICKET_MAX, "%zu %s", size, hex);
}

/* ---- get ----------------------------------------------------------------- */

/* A claim is what brings a value; if there is none it is given back at once. */
static void begin_get(struct job *j)
{
    vow_store *s = j->results->store;
    vow_claim_request ask = {.name = j->name,
                             .token = j->token,
                             .flags = VOW_CLAIM_NOWAIT,
                             .takeovers = UINT32_MAX,
                             .label = "a result"};
    s->ops->claim(s, &ask, on_got, j);
}

static void on_got(int code, const vow_record *records, size_t n, void *user)
{
    struct job *j = user;
    struct vow__etcd_results *r = j->results;
    char text[TICKET_MAX];
    if (code < 0) {
        if (r->store != NULL && code != VOW_ECLOSED)
            vow__etcd_trouble(r->etcd, "the result could not be read in %s: %s",
                              r->shown, r->store->ops->explain(r->store));
        job_end(j, unreadable(code), NULL);
        return;
    }
    VOW__ASSERT(n == 1);
    if (records->status == VOW_STATUS_OWNED) {
        vow_commit_request ask = {.hold = {.name = j->name,
                                           .token = j->token,
                                           .epoch = records->epoch},
                                  .outcome = VOW_OUTCOME_ABANDONED};
        r->store->ops->commit(r->store, &ask, on_given_back, j);
        return;
    }
    if (records->status != VOW_STATUS_SETTLED) { /* others look for it too */
        gone(j);
        return;
    }
    if (!records->failed) {
        print_ticket(records->value, text);
        if (vow_bytes_size(j->bytes) == strlen(text) &&
            memcmp(vow_bytes_data(j->bytes), text, strlen(text)) == 0) {
            job_end(j, 0, records->value);
            return;
        }
    }
    vow__etcd_trouble(
        r->etcd, "what %s has is not the result that was put there", r->shown);
    job_end(j, VOW_EIO, NULL);
}

static void on_given_back(int code, const vow_record *records, size_t n,
                          void *user)
{
    struct job *j = user;
    (void)records;
    (void)n;
    if (code == VOW_ECLOSED)
        job_end(j, code, NULL);
    else
        gone(j);
}

static void gone(struct job *j)
{
    vow__etcd_trouble(j->results->etcd,
                      "the result is not in %s: it was put elsewhere, or is "
                      "gone; forget the name to have it made anew",
                      j->results->shown);
    job_end(j, VOW_EIO, NULL);
}

/* ---- closing ------------------------------------------------------------- */

void vow__results_leave(struct vow__etcd_results *r)
{
    (void)vow_call_stop(&r->soon);
    refuse_all(r, VOW_ECLOSED);
}

void vow__results_close(struct vow__etcd_results *r,
                        void (*done)(struct vow__etcd *e))
{
    (void)vow_call_stop(&r->soon);
    r->done = done;
    refuse_all(r, VOW_ECLOSED);
    if (r->opening == NULL)
        finish(r);
}

static void finish(struct vow__etcd_results *r)
{
    if (r->store == NULL) {
        on_closed(NULL, r);
        return;
    }
    vow_store *s = r->store;
    r->store = NULL;
    r->leaving = s->ops->close(s);
    vow_watch_start(&r->closed, r->leaving, on_closed, r);
}

static void on_closed(vow_future *settled, void *user)
{
    struct vow__etcd_results *r = user;
    struct vow__etcd *e = r->etcd;
    void (*done)(struct vow__etcd * e) = r->done;
    struct vow_alloc alloc = r->alloc;
    (void)settled;
    vow_future_unref(r->leaving);
    vow__mem_free(&alloc, r, sizeof(*r));
    done(e);
}
