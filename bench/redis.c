/* SPDX-License-Identifier: MIT */
/* redis.c - the library's own side of `./dev bench redis`: runs one case.
 *
 * usage: bench_redis CASE, started by redis.py, which gives it a server of its
 * own: VOW_BENCH_REDIS is the path of its socket. What has a floor in C, and
 * redis-benchmark, is measured here in turns with ours, on the same server, and
 * gives rows of both. The peers in other languages (peers/) do the same work
 * under the same names.
 */
#include "redis.h"

static const struct bench_case cases[] = {
    {"claim", bench_claim}, {"claim-one", bench_claim_one},
    {"wake", bench_wake},   {"hot", bench_hot},
    {"pulse", bench_pulse}, {"lock", bench_lock},
    {"job", bench_job},     {"records", bench_records},
};

int main(int argc, char **argv)
{
    return run_ours(argc, argv, cases, COUNT(cases));
}

const char *server_socket(void)
{
    const char *path = getenv("VOW_BENCH_REDIS");
    MUST(path != NULL);
    return path;
}

const char *server_url(void)
{
    static char url[300];
    (void)snprintf(url, sizeof(url), "unix:%s", server_socket());
    return url;
}

vow_store *open_store(vow_loop *loop)
{
    VOW_AUTO(vow_future) f = vow_store_open(loop, server_url());
    MUST(vow_loop_run_until(loop, f) == 0);
    return vow_as_ptr(vow_get(f));
}

void close_store(vow_loop *loop, vow_store *store)
{
    VOW_AUTO(vow_future) f = store->ops->close(store);
    MUST(vow_loop_run_until(loop, f) == 0);
}

vow_authority *open_authority(vow_loop *loop, uint32_t flags,
                              vow_event_fn on_event, void *user)
{
    VOW_AUTO(vow_future)
    f = vow_authority_open(loop, server_url(),
                           VOW_AUTHORITY(.flags = flags, .on_event = on_event,
                                         .on_event_user = user));
    MUST(vow_loop_run_until(loop, f) == 0);
    return vow_authority_ref(vow_as_ptr(vow_get(f)));
}

void close_authority(vow_loop *loop, vow_authority *a)
{
    VOW_AUTO(vow_future) f = vow_authority_close(a);
    MUST(vow_loop_run_until(loop, f) == 0);
    vow_authority_unref(a);
}

vow_name name_of_number(const char *kind, long number)
{
    char text[64];
    (void)snprintf(text, sizeof(text), "%s %ld", kind, number);
    return vow_name_of(text);
}
