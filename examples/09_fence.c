/* SPDX-License-Identifier: MIT */
/* 09_fence.c - a worker that comes back from the dead, and a sink that knows.
 *
 * Two workers share the name of one job. The first begins, gives no sign of
 * life for longer than its lease (as a machine that swaps, or a container that
 * was frozen) and is replaced. Then it goes on where it was, and writes: no
 * lock can keep it from doing that. But each of them was given a number, its
 * fence, which is larger for whoever came later. The sink remembers the largest
 * it has seen and refuses what comes with a smaller one.
 *
 * The address of the store is the first argument: file:DIR, or etcd://HOST for
 * workers on many machines. Without one it is a folder of its own. */
/* NOLINTNEXTLINE(bugprone-reserved-identifier): so nftw() is asked for */
#define _XOPEN_SOURCE 700
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vow.h>

enum { LEASE_MS = 500, LOOK_MS = 50, KEEP_MS = 5000 };

/* What the work writes to: a database, a file server, a machine tool. */
struct sink {
    uint64_t highest;
    char text[32];
    unsigned refused;
};

static bool sink_write(struct sink *s, uint64_t fence, const char *text)
{
    if (fence < s->highest) {
        s->refused++;
        printf("sink    refuses \"%s\": an older fence\n", text);
        return false;
    }
    s->highest = fence;
    snprintf(s->text, sizeof(s->text), "%s", text);
    printf("sink    takes \"%s\"\n", text);
    return true;
}

struct worker {
    const char *name;
    vow_loop *loop;
    vow_authority *authority;
    struct sink *sink;
    bool frozen; /* until somebody else has written */
    uint64_t fence;
};

static vow_next write_it(vow_value v, void *user)
{
    struct worker *w = user;
    (void)v;
    if (w->frozen && w->sink->highest == 0)
        return vow_follow(
            vow_then_drop(vow_delay(w->loop, LOOK_MS), write_it, NULL, w));
    printf("%-7s writes\n", w->name);
    if (!sink_write(w->sink, w->fence, w->name))
        return vow_fail(vow_error_new(w->loop, VOW_ELOST, NULL));
    vow_bytes *bytes;
    if (vow_bytes_new(w->loop, w->name, strlen(w->name), &bytes) < 0)
        return vow_fail(vow_error_new(w->loop, VOW_ENOMEM, NULL));
    return vow_ok(vow_bytes_value(bytes));
}

static vow_future *work(vow_lease *lease, void *arg)
{
    struct worker *w = arg;
    w->fence = vow_lease_fence(lease);
    printf("%-7s begins\n", w->name);
    return vow_then_drop(vow_delay(w->loop, 0), write_it, NULL, w);
}

/* The pulse is by hand, and nobody gives one: so it is frozen. */
static vow_future *ask(struct worker *w)
{
    vow_name name = vow_name_of("the one job");
    return vow_share(w->authority, &name, work, w,
                     VOW_SHARE(.mode = VOW_FENCED, .lease_ms = LEASE_MS,
                               .ttl_ms = KEEP_MS,
                               .flags = VOW_SHARE_MANUAL_PULSE | VOW_SHARE_KEEP,
                               .label = "the one job"));
}

static int open_worker(struct worker *w, const char *address)
{
    VOW_AUTO(vow_future)
    opened = vow_authority_open(w->loop, address, NULL);
    int rc = vow_loop_run_until(w->loop, opened);
    if (rc < 0)
        fprintf(stderr, "%s\n", vow_error_message(vow_error_of(opened)));
    else
        w->authority = vow_authority_ref(vow_as_ptr(vow_get(opened)));
    return rc;
}

static void close_worker(struct worker *w)
{
    if (w->authority == NULL)
        return;
    VOW_AUTO(vow_future) closed = vow_authority_close(w->authority);
    vow_loop_run_until(w->loop, closed);
    w->authority = vow_authority_unref(w->authority);
}

static bool meet(struct worker *first, struct worker *second)
{
    struct sink *sink = first->sink;
    VOW_AUTO(vow_future) a = ask(first);
    VOW_AUTO(vow_future) moment = vow_delay(first->loop, LEASE_MS / 4);
    vow_loop_run_until(first->loop, moment);
    VOW_AUTO(vow_future) b = ask(second);
    vow_loop_run_until(first->loop, b);
    while (sink->refused == 0 && vow_state_of(b) == VOW_FULFILLED) {
        VOW_AUTO(vow_future) wakes = vow_delay(first->loop, LOOK_MS);
        vow_loop_run_until(first->loop, wakes);
    }
    vow_loop_run_until(first->loop, a);
    (void)vow_error_of(a); /* it gets the result of the other, or hears why */
    printf("in the end it is \"%s\", and %u write was refused\n", sink->text,
           sink->refused);
    return strcmp(sink->text, second->name) == 0 && sink->refused == 1 &&
           second->fence > first->fence;
}

static int remove_it(const char *path, const struct stat *s, int kind,
                     struct FTW *at)
{
    (void)s;
    (void)kind;
    (void)at;
    return remove(path);
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/vow-fence-XXXXXX", address[sizeof(folder) + 8];
    struct sink sink = {.highest = 0};
    struct worker second = {.name = "second", .sink = &sink};
    struct worker first = {.name = "first", .sink = &sink, .frozen = true};
    vow_loop *loop;
    if (argc < 2 && mkdtemp(folder) == NULL)
        return 1;
    snprintf(address, sizeof(address), "file:%s", folder);
    if (vow_loop_new(NULL, &loop) < 0)
        return 1;
    first.loop = second.loop = loop;
    bool good = open_worker(&first, argc > 1 ? argv[1] : address) == 0 &&
                open_worker(&second, argc > 1 ? argv[1] : address) == 0 &&
                meet(&first, &second);
    close_worker(&first);
    close_worker(&second);
    vow_loop_close(loop);
    if (argc < 2)
        (void)nftw(folder, remove_it, 8, FTW_DEPTH | FTW_PHYS);
    return good ? 0 : 1;
}
