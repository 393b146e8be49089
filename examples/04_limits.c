/* SPDX-License-Identifier: MIT */
/* 04_limits.c - limits around an API: so many at once, so many per second.
 *
 * A pretend API with two hosts allows 50 requests in any second. 70 requests
 * are handed to one gate at once; it lets them through as the limits allow, and
 * the hosts take turns. Soon one host asks to be left in peace: its requests
 * wait, those of the other go on, and the failed ones come back to the gate as
 * new requests, which count like the first. The API writes down when each
 * request came, so that the program can say in the end whether it was ever
 * asked too much. */
#include <inttypes.h>
#include <stdio.h>
#include <vow.h>

enum { REQUESTS = 70, AT_ONCE = 8, PER_SECOND = 50, PEACE_MS = 300 };

struct api {
    vow_loop *loop;
    uint64_t began_ns;
    uint64_t came_ns[4 * REQUESTS]; /* when each request came */
    size_t came;
    int running, most_running;
    int busy; /* answers of "too many requests" */
};

struct request {
    struct api *api;
    const char *host;
    uint64_t takes_ms;
    uint32_t attempt;
    bool unlucky; /* its first attempt meets a busy host */
};

struct client {
    struct api api;
    vow_gate *gate;
    struct request requests[REQUESTS];
    vow_future *answers[REQUESTS];
    int64_t told; /* of so many answers */
    bool kept;    /* the hurried request was answered in time, or refused */
};

static unsigned now_ms(const struct api *a)
{
    return (unsigned)((vow_loop_now_ns(a->loop) - a->began_ns) / 1000000);
}

/* ---- the pretend API ----------------------------------------------------- */

static vow_next answer(vow_value v, void *user)
{
    struct request *r = user;
    struct api *a = r->api;
    (void)v;
    a->running--;
    if (!r->unlucky || r->attempt > 1)
        return vow_ok(vow_ptr(r->host));
    if (a->busy++ == 0)
        printf("%4u ms  %s is busy and wants %d ms of peace\n", now_ms(a),
               r->host, PEACE_MS);
    vow_error *e = vow_error_new(a->loop, VOW_EAGAIN, "too many requests");
    vow_error_set_retry_after_ms(e, PEACE_MS);
    return vow_fail(e);
}

/* One request: called by the gate, once for each attempt. */
static vow_future *ask(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct request *r = arg;
    struct api *a = r->api;
    if (a->came < sizeof(a->came_ns) / sizeof(a->came_ns[0]))
        a->came_ns[a->came++] = vow_loop_now_ns(loop);
    if (++a->running > a->most_running)
        a->most_running = a->running;
    r->attempt = attempt;
    return vow_then_drop(vow_delay(loop, r->takes_ms), answer, NULL, r);
}

/* The most requests in any second, both ends of it included. */
static size_t most_in_a_second(const struct api *a)
{
    size_t most = 0;
    for (size_t last = 0, first = 0; last < a->came; last++) {
        while (a->came_ns[last] - a->came_ns[first] > 1000000000)
            first++;
        if (last - first + 1 > most)
            most = last - first + 1;
    }
    return most;
}

/* ---- its client ---------------------------------------------------------- */

/* Which failures say "too much"? The gate then leaves the host alone for as
 * long as the error says, and the request is worth another attempt. */
static bool too_many(vow_error *e, void *user)
{
    (void)user;
    return vow_error_code(e) == VOW_EAGAIN;
}

static void send_all(struct client *c)
{
    for (int i = 0; i < REQUESTS; i++) {
        struct request *r = &c->requests[i];
        r->api = &c->api;
        r->host = i % 2 == 0 ? "eu.example" : "us.example";
        r->takes_ms = 20 + (uint64_t)i * 7 % 40;
        r->unlucky = i == 1 || i == 3 || i == 5;
        /* All of it within 5 s: the wait, both attempts, what lies between. */
        c->answers[i] = vow_gate_run(
            c->gate, ask, r,
            VOW_JOB(.key = r->host, .deadline_ms = 5000,
                    .retry = VOW_RETRY(.tries = 3, .retry_if = too_many)));
    }
}

static void on_progress(vow_value settled, void *user)
{
    struct client *c = user;
    if (vow_as_int(settled) < c->told + 10)
        return;
    c->told = vow_as_int(settled);
    printf("%4u ms  %" PRId64 " of %d answered\n", now_ms(&c->api), c->told,
           REQUESTS);
}

/* A fiber that looks in while the rate is used up: why does the last request
 * still wait, and what becomes of one that cannot wait? */
static vow_next look_in(void *arg)
{
    struct client *c = arg;
    struct request hurried = {&c->api, "eu.example", 20, 0, false};
    vow_job_explain why;
    char text[200];

    if (vow_sleep(c->api.loop, 500) < 0)
        return vow_fail_code(VOW_ECANCELED, NULL);
    vow_gate_explain(c->gate, c->answers[REQUESTS - 1], &why);
    vow_job_explain_text(&why, text, sizeof(text));
    printf("%4u ms  the last request %s\n", now_ms(&c->api), text);

    unsigned sent_ms = now_ms(&c->api);
    const vow_job_opts *job = VOW_JOB(.key = hurried.host, .deadline_ms = 100);
    VOW_AUTO(vow_future) f = vow_gate_run(c->gate, ask, &hurried, job);
    int rc = vow_await(f);
    printf("%4u ms  one with 100 ms to live: %s, %u ms later\n",
           now_ms(&c->api), rc == 0 ? "answered" : vow_error_text(rc),
           now_ms(&c->api) - sent_ms);
    c->kept = rc == 0 || rc == VOW_ETIMEDOUT;
    return vow_ok(vow_nothing());
}

static bool sum_up(struct client *c)
{
    const struct api *a = &c->api;
    vow_gate_stats stats;
    int answered = 0, again = 0;
    for (int i = 0; i < REQUESTS; i++) {
        answered += vow_state_of(c->answers[i]) == VOW_FULFILLED;
        again += c->requests[i].attempt > 1;
    }
    vow_gate_stats_get(c->gate, &stats);
    printf("\nanswered          %d of %d in %u ms, %d at the second attempt\n"
           "most at once      %d, where %d are allowed\n"
           "most in a second  %zu, where %d are allowed\n"
           "in all            %zu requests; the gate counts %" PRIu64 "\n",
           answered, REQUESTS, now_ms(a), again, a->most_running, AT_ONCE,
           most_in_a_second(a), PER_SECOND, a->came, stats.started);
    return answered == REQUESTS && again == 3 && c->kept &&
           a->most_running <= AT_ONCE && most_in_a_second(a) <= PER_SECOND &&
           stats.started == a->came && stats.waiting == 0;
}

int main(void)
{
    static struct client c;
    vow_loop *loop;
    if (vow_loop_new(NULL, &loop) < 0)
        return 1;
    if (vow_gate_new(loop,
                     VOW_GATE(.concurrent = AT_ONCE, .rate = PER_SECOND,
                              .window_ms = 1000, .key_concurrent = 6,
                              .overloaded = too_many),
                     &c.gate) < 0)
        return 1;
    c.api.loop = loop;
    c.api.began_ns = vow_loop_now_ns(loop);
    send_all(&c);
    vow_future *all = vow_all(loop, c.answers, REQUESTS);
    vow_future *heard = vow_on_progress(all, on_progress, &c);
    vow_future *visit = vow_async(loop, look_in, &c);
    vow_loop_run(loop);
    bool good = sum_up(&c);

    vow_future_unref(visit);
    vow_future_unref(heard);
    vow_future_unref(all);
    for (int i = 0; i < REQUESTS; i++)
        vow_future_unref(c.answers[i]);
    vow_gate_unref(c.gate);
    vow_loop_close(loop);
    return good ? 0 : 1;
}
