/* SPDX-License-Identifier: MIT */
/* etcd_world.h - the store on etcd as programs see it: members that run, which
 * are a town, and authorities, which have a seat in it. With etcd_process.h
 * also processes that can be killed and stopped.
 *
 *     static struct town r;
 *     static struct seat a;
 *     town_open(&r, NULL);
 *     seat_open(&r, &a, r.k.url, VOW_AUTHORITY(.lease_ms = 3000));
 *     ...
 *     seat_close(&r, &a);
 *     town_close(&r);
 *
 * Time is real. No test waits for less than what is promised to last, and what
 * must happen is waited for until the test's own time is over; where a span is
 * promised, SLACK_MS is added to it for machines with much to do. A lease that
 * must not end is HELD_MS long; one that must end is ended by town_end_leases()
 * where the time it takes is not what is tested.
 */
#ifndef TEST_ETCD_WORLD_H
#define TEST_ETCD_WORLD_H

#include "etcd_kit.h"
#include "world.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SLACK_MS = 60000,
    LATE_MS = 3000,   /* how much later than asked etcd ends a lease */
    HELD_MS = 60000,  /* a lease that outlives any pause of the machine */
    RARELY_MS = 90000 /* to look again, where looking must not be needed */
};

struct town {
    struct etcd_kit k; /* its url has a timeout for machines with much to do */
    struct world w;
    char base[128]; /* the url without options */
};

static inline void town_start(struct town *r, const struct etcd_kit_opts *opts)
{
    size_t n;
    etcd_start(&r->k, opts);
    memcpy(r->base, r->k.url, sizeof(r->base));
    n = strlen(r->k.url);
    CHECK(snprintf(r->k.url + n, sizeof(r->k.url) - n, "?timeout=30000") <
          (int)(sizeof(r->k.url) - n));
}

static inline void town_open(struct town *r, const struct etcd_kit_opts *opts)
{
    town_start(r, opts);
    world_open_real(&r->w);
}

static inline void town_close(struct town *r)
{
    world_close(&r->w);
    etcd_stop(&r->k);
}

/* An address with options, in one buffer of this function. */
static inline const char *town_url(struct town *r, const char *options)
{
    static char url[512];
    CHECK(snprintf(url, sizeof(url), "%s%s", r->base, options) <
          (int)sizeof(url));
    return url;
}

static inline uint64_t town_ms(const struct town *r)
{
    return vow_loop_now_ns(r->w.loop) / 1000000;
}

/* Run until it is settled; its code. The reference is moved. */
static inline int town_until(struct town *r, vow_future *f)
{
    int rc = vow_loop_run_until(r->w.loop, f);
    CHECK(vow_state_of(f) != VOW_PENDING);
    vow_future_unref(f);
    return rc;
}

static inline void town_pass(struct town *r, uint64_t ms)
{
    CHECK_INT_EQ(town_until(r, vow_delay(r->w.loop, ms)), 0);
}

#define TOWN_UNTIL(r, cond)                                                    \
    do {                                                                       \
        while (!(cond))                                                        \
            town_pass((r), 5);                                                 \
    } while (0)

/* ---- authorities --------------------------------------------------------- */

struct seat {
    vow_authority *a;
    atomic_uint told[VOW_EVENT_UP + 1]; /* by kind of event */
};

static inline void seat_hears(const vow_event *e, void *user)
{
    struct seat *s = user;
    atomic_fetch_add(&s->told[e->kind], 1);
}

static inline void seat_open(struct town *r, struct seat *s, const char *url,
                             const vow_authority_opts *opts)
{
    vow_authority_opts o = *opts;
    o.on_event = seat_hears;
    o.on_event_user = s;
    VOW_AUTO(vow_future) f = vow_authority_open(r->w.loop, url, &o);
    if (vow_loop_run_until(r->w.loop, f) != 0)
        FAIL("%s", vow_error_message(vow_error_of(f)));
    s->a = vow_authority_ref(vow_as_ptr(vow_get(f)));
}

static inline void seat_close(struct town *r, struct seat *s)
{
    CHECK_INT_EQ(town_until(r, vow_authority_close(s->a)), 0);
    s->a = vow_authority_unref(s->a);
}

/* What is known of a name; without the texts, which are gone. */
static inline vow_record seat_peek(struct town *r, struct seat *s,
                                   const vow_name *name)
{
    VOW_AUTO(vow_future) f = vow_authority_peek(s->a, name, 1);
    CHECK_INT_EQ(vow_loop_run_until(r->w.loop, f), 0);
    const vow_records *list = vow_as_ptr(vow_get(f));
    CHECK_UINT_EQ(list->n, 1);
    vow_record rec = list->at[0];
    rec.value = NULL;
    rec.label = rec.runner = NULL;
    return rec;
}

/* ---- claims by hand ------------------------------------------------------ */

struct turn {
    int code;           /* of the claim */
    unsigned leases;    /* given to it so far */
    vow_lease *lease;   /* the last of them, kept; NULL: none */
    vow_future *result; /* kept; NULL if the claim was refused */
};

static inline void turn_gets(vow_lease *lease, void *user)
{
    struct turn *t = user;
    t->leases++;
    vow_lease_unref(t->lease);
    t->lease = vow_lease_ref(lease);
}

static inline void turn_take(struct town *r, struct seat *s, struct turn *t,
                             const char *text, const vow_share_opts *opts)
{
    vow_name name = vow_name_of(text);
    *t = (struct turn){.code = 0};
    VOW_AUTO(vow_future)
    f = vow_claim_name(s->a, &name, turn_gets, t, opts);
    t->code = vow_loop_run_until(r->w.loop, f);
    if (t->code != 0)
        return;
    const vow_claim *c = vow_as_ptr(vow_get(f));
    t->result = vow_future_ref(c->result);
    if (c->lease != NULL && t->lease == NULL)
        turn_gets(c->lease, t);
}

static inline vow_next turn_ignore_error(vow_error *error, void *user)
{
    (void)error;
    (void)user;
    return vow_ok(vow_nothing());
}

/* The result may be rejected now or later: either is handled. */
static inline void turn_drop(struct turn *t)
{
    if (t->result != NULL)
        CHECK_INT_EQ(vow_done(t->result, NULL, turn_ignore_error, NULL), 0);
    t->result = NULL;
    t->lease = vow_lease_unref(t->lease);
}

static inline vow_value town_text(struct town *r, const char *text)
{
    vow_bytes *b = NULL;
    CHECK_INT_EQ(vow_bytes_new(r->w.loop, text, strlen(text), &b), 0);
    return vow_bytes_value(b);
}

/* Settle; 0 if the store took it. */
static inline int turn_say(struct town *r, struct turn *t, const char *text)
{
    (void)vow_lease_resolve(t->lease, town_text(r, text));
    return town_until(r, vow_lease_settled(t->lease));
}

static inline bool says(vow_future *f, const char *text)
{
    vow_bytes *b = vow_as_bytes(vow_get(f));
    return b != NULL && vow_bytes_size(b) == strlen(text) &&
           memcmp(vow_bytes_data(b), text, strlen(text)) == 0;
}

/* The code of a result, which must say this if it has one. */
static inline int turn_hears(struct town *r, struct turn *t, const char *text)
{
    int rc = vow_loop_run_until(r->w.loop, t->result);
    CHECK(vow_state_of(t->result) != VOW_PENDING);
    CHECK(rc != 0 || says(t->result, text));
    return rc;
}

/* ---- work ---------------------------------------------------------------- */

/* It counts how often it is begun, and says a text. */
struct task {
    struct town *r;
    const char *text;
    unsigned runs;
    uint64_t fence;
};

static inline vow_future *task_run(vow_lease *lease, void *arg)
{
    struct task *t = arg;
    t->runs++;
    t->fence = vow_lease_fence(lease);
    return vow_resolved(t->r->w.loop, town_text(t->r, t->text));
}

/* Ask; the code. With 0 the text must be this one. */
static inline int task_share(struct seat *s, struct task *t, const char *name,
                             const char *want, const vow_share_opts *opts)
{
    vow_name n = vow_name_of(name);
    VOW_AUTO(vow_future) f = vow_share(s->a, &n, task_run, t, opts);
    int rc = vow_loop_run_until(t->r->w.loop, f);
    CHECK(vow_state_of(f) != VOW_PENDING);
    if (rc == 0 && !says(f, want))
        FAIL("%s does not say %s", name, want);
    return rc;
}

/* ---- what etcd counts ---------------------------------------------------- */

/* The sum of all numbers of a member whose line begins so. */
static inline uint64_t town_metric(struct town *r, size_t member,
                                   const char *line)
{
    static char text[1024 * 1024];
    static const char ask[] = "GET /metrics HTTP/1.0\r\n\r\n";
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(r->k.at[member].plain),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    size_t n = 0;
    ssize_t got = 0;
    double sum = 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
    CHECK(send(fd, ask, sizeof(ask) - 1, 0) == (ssize_t)sizeof(ask) - 1);
    while (n + 1 < sizeof(text) &&
           (got = recv(fd, text + n, sizeof(text) - 1 - n, 0)) > 0)
        n += (size_t)got;
    close(fd);
    text[n] = 0;
    CHECK(strstr(text, "grpc_server_started_total") != NULL);
    for (char *at = text; (at = strchr(at, '\n')) != NULL;) {
        at++;
        if (strncmp(at, line, strlen(line)) != 0)
            continue;
        char *end = strchr(at, '\n');
        while (end > at && end[-1] != ' ')
            end--;
        sum += strtod(end, NULL);
    }
    return (uint64_t)sum;
}

/* How many messages of this method all members that run have got. */
static inline uint64_t town_asked(struct town *r, const char *method)
{
    char line[128];
    uint64_t n = 0;
    (void)snprintf(line, sizeof(line),
                   "grpc_server_msg_received_total{grpc_method=\"%s\"", method);
    for (size_t i = 0; i < r->k.n; i++)
        if (r->k.at[i].pid != 0 && !r->k.at[i].frozen)
            n += town_metric(r, i, line);
    return n;
}

/* End the leases at etcd of what has a lease of so many seconds. */
static inline void town_end_leases(struct town *r, unsigned seconds)
{
    static char said[16 * 1024];
    unsigned n = 0;
    (void)snprintf(said, sizeof(said), "%s",
                   etcd_say(&r->k, "lease/leases", "%s", "{}"));
    for (char *at = said; (at = strstr(at, "\"ID\":\"")) != NULL; at++) {
        unsigned long long id = strtoull(at + strlen("\"ID\":\""), NULL, 10);
        uint64_t ttl = etcd_number(
            etcd_say(&r->k, "lease/timetolive", "{\"ID\":\"%llu\"}", id),
            "grantedTTL");
        if (ttl < seconds || ttl > seconds + 3)
            continue;
        (void)etcd_say(&r->k, "lease/revoke", "{\"ID\":\"%llu\"}", id);
        n++;
    }
    CHECK(n > 0);
}

static inline unsigned town_leases(struct town *r)
{
    const char *at = etcd_say(&r->k, "lease/leases", "%s", "{}");
    unsigned n = 0;
    while ((at = strstr(at, "\"ID\":")) != NULL) {
        n++;
        at++;
    }
    return n;
}

#endif
