/* SPDX-License-Identifier: MIT */
/* etcd_pools_kit.h - steps on pools by the two stores of etcd_names_kit.h, and
 * the watch on turns, passed on from etcd by the test: the test may break the
 * watch, or let the watch stand still. */
#ifndef TEST_ETCD_POOLS_KIT_H
#define TEST_ETCD_POOLS_KIT_H

#include "etcd_names_kit.h"

struct pools {
    struct names *n;
    struct fake_talk *talk[STORES]; /* the watch on turns; NULL: none */
    int etcd[STORES];               /* -1: none */
    bool head[STORES];              /* the head of the answer is over */
    unsigned watches;               /* requests to watch turns */
    const char *garbage; /* answers transactions, which are done; NULL: none */
    bool still;          /* nothing is passed on */
    unsigned turns[STORES]; /* on_permit */
    unsigned doubts[STORES];
    vow_token turn[STORES];
};

struct permit_told {
    unsigned done;
    int code;
    size_t n;
    vow_pool_permit at[64];
    vow_pool_info info;
    char label[VOW_LABEL_MAX + 1];
};

static struct pools *the_pools;

/* ---- the watch ----------------------------------------------------------- */

static inline void watch_end(struct pools *p, size_t i)
{
    if (p->etcd[i] >= 0)
        close(p->etcd[i]);
    p->etcd[i] = -1;
    p->talk[i] = NULL;
}

/* HTTP/1.0: without chunks. */
static inline void watch_begin(struct pools *p, size_t i, const char *body)
{
    char head[256];
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(p->n->member->at[0].plain),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    watch_end(p, i);
    p->watches++;
    p->talk[i] = p->n->at[i].last;
    p->head[i] = false;
    p->etcd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(connect(p->etcd[i], (struct sockaddr *)&a, sizeof(a)) == 0);
    int size = snprintf(
        head, sizeof(head),
        "POST /v3/watch HTTP/1.0\r\nContent-Length: %zu\r\n\r\n", strlen(body));
    CHECK(send(p->etcd[i], head, (size_t)size, 0) == size);
    CHECK(send(p->etcd[i], body, strlen(body), 0) == (ssize_t)strlen(body));
}

/* Passes on what etcd has told. */
static inline void watch_pass(struct pools *p, size_t i)
{
    char text[FAKE_ROOM];
    if (p->etcd[i] < 0 || p->still)
        return;
    ssize_t n = recv(p->etcd[i], text, sizeof(text) - 1, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0 || p->talk[i]->fd < 0) {
        fake_talk_end(p->talk[i]);
        watch_end(p, i);
        return;
    }
    text[n] = 0;
    const char *from = text;
    if (!p->head[i]) {
        from = strstr(text, "\r\n\r\n");
        CHECK(from != NULL);
        from += 4;
        p->head[i] = true;
    }
    /* The store may have closed the stream. */
    (void)send(p->talk[i]->fd, from, strlen(from), MSG_NOSIGNAL);
}

/* Garbage has the revision of etcd: else etcd would have been restored. */
static inline const char *bridge_or_garbage(struct fake_etcd *f,
                                            const char *path, const char *body)
{
    static char text[1024];
    const char *said = bridge(f, path, body);
    if (the_pools->garbage == NULL || strcmp(path, "kv/txn") != 0)
        return said;
    snprintf(text, sizeof(text),
             "{\"header\":{\"revision\":\"%" PRIu64 "\"}%s}",
             etcd_revision(the_pools->n->member), the_pools->garbage);
    return text;
}

static inline const char *pools_bridge(struct fake_etcd *f, const char *path,
                                       const char *body)
{
    struct pools *p = the_pools;
    size_t i = f == &p->n->at[0] ? 0 : 1;
    if (strcmp(path, "watch") != 0 || strstr(body, "dm93L2kv") == NULL)
        return bridge_or_garbage(f, path, body);
    watch_begin(p, i, body);
    return FAKE_SILENCE;
}

/* The connection of the watch breaks. */
static inline void watch_break(struct pools *p, size_t i)
{
    CHECK(p->talk[i] != NULL);
    fake_talk_end(p->talk[i]);
    watch_end(p, i);
}

/* ---- opening ------------------------------------------------------------- */

static inline void told_turn_0(const vow_token *token, void *user)
{
    (void)user;
    the_pools->turns[0]++;
    the_pools->turn[0] = *token;
}

static inline void told_turn_1(const vow_token *token, void *user)
{
    (void)user;
    the_pools->turns[1]++;
    the_pools->turn[1] = *token;
}

static inline void pools_doubted(void *user)
{
    (*(unsigned *)user)++;
}

static inline void pools_begin(struct pools *p, struct names *n)
{
    memset(p, 0, sizeof(*p));
    p->n = n;
    the_pools = p;
    for (size_t i = 0; i < STORES; i++) {
        p->etcd[i] = -1;
        n->at[i].answer = pools_bridge;
        vow_store *s = n->at[i].store;
        if (s != NULL)
            s->ops->listen(s,
                           &(const vow_store_events){
                               .on_permit = i == 0 ? told_turn_0 : told_turn_1,
                               .on_doubt = pools_doubted,
                               .user = &p->doubts[i]});
    }
}

static inline void pools_end(struct pools *p)
{
    names_end(p->n);
    for (size_t i = 0; i < STORES; i++)
        watch_end(p, i);
}

static inline struct pools *pools_open(void)
{
    static struct pools p;
    pools_begin(&p, names_open());
    return &p;
}

static inline void pools_close(struct pools *p)
{
    names_close(p->n);
    for (size_t i = 0; i < STORES; i++)
        watch_end(p, i);
}

/* A millisecond passes. */
static inline void pools_step(struct pools *p)
{
    world_advance_ms(p->n->w, 1);
    names_step(p->n);
    for (size_t i = 0; i < STORES; i++)
        watch_pass(p, i);
}

static inline void pools_pass(struct pools *p, uint64_t ms)
{
    for (; ms > 0; ms--)
        pools_step(p);
}

#define POOLS_UNTIL(p, cond)                                                   \
    do {                                                                       \
        while (!(cond))                                                        \
            pools_step(p);                                                     \
    } while (0)

/* ---- steps --------------------------------------------------------------- */

static inline void permits_told(int code, const vow_pool_permit *permits,
                                size_t n, void *user)
{
    struct permit_told *t = user;
    t->done++;
    t->code = code;
    t->n = n;
    CHECK(n <= sizeof(t->at) / sizeof(t->at[0]));
    if (n > 0)
        memcpy(t->at, permits, n * sizeof(permits[0]));
}

static inline void infos_told(int code, const vow_pool_info *infos, size_t n,
                              void *user)
{
    struct permit_told *t = user;
    t->done++;
    t->code = code;
    t->n = n;
    if (n == 0)
        return;
    t->info = infos[0];
    snprintf(t->label, sizeof(t->label), "%s", infos[0].label);
}

static inline struct permit_told *permit_await(struct pools *p,
                                               struct permit_told *t)
{
    POOLS_UNTIL(p, t->done > 0);
    CHECK_UINT_EQ(t->done, 1);
    return t;
}

static inline vow_store *store_of(struct pools *p, size_t i)
{
    return p->n->at[i].store;
}

#define PERMIT(text, number, ...)                                              \
    (&(const vow_permit_request){.pool = vow_name_of(text),                    \
                                 .limits_of = vow_name_of(text),               \
                                 .token = token_of(number),                    \
                                 .weight = 1,                                  \
                                 .lease_ms = LONG_MS,                          \
                                 .limits = {.concurrent = 1},                  \
                                 .label = (text),                              \
                                 .runner = "r",                                \
                                 __VA_ARGS__})

static inline struct permit_told acquire(struct pools *p, size_t i,
                                         const vow_permit_request *q)
{
    struct permit_told t = {.done = 0};
    store_of(p, i)->ops->acquire(store_of(p, i), q, permits_told, &t);
    return *permit_await(p, &t);
}

static inline vow_permit_hold permit_hold(const char *text, uint64_t number)
{
    return (vow_permit_hold){.pool = vow_name_of(text),
                             .limits_of = vow_name_of(text),
                             .token = token_of(number)};
}

static inline struct permit_told release(struct pools *p, size_t i,
                                         const char *text, uint64_t number)
{
    struct permit_told t = {.done = 0};
    const vow_permit_hold hold = permit_hold(text, number);
    store_of(p, i)->ops->release(store_of(p, i), &hold, permits_told, &t);
    return *permit_await(p, &t);
}

/* `n` tokens from `first` on. */
struct renewal {
    const char *pool;
    uint64_t first;
    size_t n;
    uint64_t lease_ms;
    bool started;
};
#define RENEW(text, number, ...)                                               \
    (&(const struct renewal){.pool = (text),                                   \
                             .first = (number),                                \
                             .n = 1,                                           \
                             .lease_ms = LONG_MS,                              \
                             __VA_ARGS__})

static inline struct permit_told renew(struct pools *p, size_t i,
                                       const struct renewal *r)
{
    struct permit_told t = {.done = 0};
    vow_permit_hold holds[64];
    CHECK(r->n <= 64);
    for (size_t k = 0; k < r->n; k++) {
        holds[k] = permit_hold(r->pool, r->first + k);
        holds[k].started = r->started;
    }
    store_of(p, i)->ops->renew(store_of(p, i), holds, r->n, r->lease_ms,
                               permits_told, &t);
    return *permit_await(p, &t);
}

static inline struct permit_told limit(struct pools *p, size_t i,
                                       const char *text,
                                       const vow_pool_limits *limits)
{
    struct permit_told t = {.done = 0};
    vow_name pool = vow_name_of(text);
    store_of(p, i)->ops->limit(store_of(p, i), &pool, limits, NULL, infos_told,
                               &t);
    return *permit_await(p, &t);
}

static inline struct permit_told list_pools(struct pools *p, size_t i)
{
    struct permit_told t = {.done = 0};
    store_of(p, i)->ops->pools(store_of(p, i), infos_told, &t);
    return *permit_await(p, &t);
}

/* "vow/s/L/..." of a pool with limits of its own. */
static inline const char *pool_key(const char *text, const char *rest)
{
    static char key[256];
    char name[VOW_NAME_TEXT];
    vow_name pool = vow_name_of(text);
    (void)vow_name_text(&pool, name);
    if (strcmp(rest, "l") == 0)
        snprintf(key, sizeof(key), "vow/s/%s/l", name);
    else
        snprintf(key, sizeof(key), "vow/s/%s/%s/%s", name, name, rest);
    return key;
}

/* How many rows ("q/") or entries ("t/") there are. */
static inline uint64_t pool_count(struct pools *p, const char *text,
                                  const char *kind)
{
    return etcd_count(p->n->member, pool_key(text, kind));
}

#endif
