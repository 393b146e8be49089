/* SPDX-License-Identifier: MIT */
/* refusal_test.c - calls to the system that almost never fail, failing: each
 * must come back as an error, with nothing lost.
 *
 * HOW   Functions of libuv and libc that are defined here are the ones that the
 *       library under test is linked to. They pass on to the real ones, unless
 *       a test said which call is to be refused. What can be had by a limit of
 *       the process is had by that.
 */
#include "base/clock.h"
#include "vow/fiber.h"
#include "vow/uv.h"
#include "vow/work.h"
#include "world.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum call { RANDOM, MUTEX, COND, ASYNC, THREAD, GUARD, CALLS };
enum { ALWAYS = -1, MADV_GUARD = 102 };

static int refuse[CALLS]; /* how many calls from now; 0: none */

static bool refused(enum call c)
{
    if (refuse[c] == ALWAYS)
        return true;
    return refuse[c] > 0 && --refuse[c] == 0;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int uv_random(uv_loop_t *loop, uv_random_t *req, void *buf, size_t buflen,
              unsigned flags, uv_random_cb cb)
{
    if (refused(RANDOM))
        return UV_ENOSYS;
    return REAL(uv_random)(loop, req, buf, buflen, flags, cb);
}

int uv_mutex_init(uv_mutex_t *handle)
{
    return refused(MUTEX) ? UV_EAGAIN : REAL(uv_mutex_init)(handle);
}

int uv_cond_init(uv_cond_t *cond)
{
    return refused(COND) ? UV_EAGAIN : REAL(uv_cond_init)(cond);
}

int uv_async_init(uv_loop_t *loop, uv_async_t *async, uv_async_cb async_cb)
{
    if (refused(ASYNC))
        return UV_EMFILE;
    return REAL(uv_async_init)(loop, async, async_cb);
}

int uv_thread_create(uv_thread_t *tid, uv_thread_cb entry, void *arg)
{
    if (refused(THREAD))
        return UV_EAGAIN;
    return REAL(uv_thread_create)(tid, entry, arg);
}

int madvise(void *addr, size_t len, int advice)
{
    if (advice == MADV_GUARD && refused(GUARD)) {
        errno = EINVAL; /* as kernels before 6.13 do */
        return -1;
    }
    return (int)syscall(SYS_madvise, addr, len, advice);
}

static int code_of(vow_future *f)
{
    return vow_error_code(vow_error_of(f));
}

/* ---- the clock ---------------------------------------------------------- */

TEST(clock, seed_without_entropy_is_the_time)
{
    const struct vow__clock real = {.is_virtual = false};
    refuse[RANDOM] = ALWAYS;
    uint64_t before = vow__clock_now_ns(&real);
    uint64_t seed = vow__clock_entropy();
    CHECK(seed >= before);
    CHECK(seed <= vow__clock_now_ns(&real));
}

/* ---- making a loop ------------------------------------------------------ */

/* Make a loop while something is refused: the code, and nothing is lost. */
static int try_loop(uv_loop_t *uv)
{
    struct test_alloc ta;
    vow_loop *loop = NULL;
    test_alloc_init(&ta);
    vow_loop_opts opts = {.size = sizeof(opts), .alloc = test_alloc_hook(&ta)};
    int rc = uv == NULL ? vow_loop_new(&opts, &loop)
                        : vow_loop_new_uv(uv, &opts, &loop);
    CHECK_INT_EQ(rc == 0, loop != NULL);
    CHECK_INT_EQ(vow_loop_close(loop), 0);
    if (uv != NULL)
        CHECK_INT_EQ(uv_run(uv, UV_RUN_DEFAULT), 0);
    test_alloc_fini(TEST_HERE, &ta);
    return rc;
}

static void check_refusals(enum call c, int code, bool own)
{
    uv_loop_t uv;
    int met = 0;
    if (!own)
        CHECK_INT_EQ(uv_loop_init(&uv), 0);
    for (int nth = 1;; nth++) {
        refuse[c] = nth;
        int rc = try_loop(own ? NULL : &uv);
        if (refuse[c] > 0) {
            CHECK_INT_EQ(rc, 0);
            break;
        }
        CHECK_INT_EQ(rc, code);
        met++;
    }
    CHECK(met > 0);
    refuse[c] = 0;
    if (!own)
        CHECK_INT_EQ(uv_loop_close(&uv), 0);
}

TEST(loop, without_a_mutex_is_refused_and_loses_nothing)
{
    check_refusals(MUTEX, UV_EAGAIN, false);
    check_refusals(MUTEX, UV_EAGAIN, true);
}

TEST(loop, without_a_wake_up_is_refused_and_loses_nothing)
{
    check_refusals(ASYNC, UV_EMFILE, false);
    check_refusals(ASYNC, UV_EMFILE, true);
}

static int lowest_free_fd(void)
{
    int fd = dup(STDERR_FILENO);
    CHECK(fd >= 0);
    close(fd);
    return fd;
}

/* The first loop of a process opens what libuv shares between all of them, and
 * aborts if it cannot; so we begin with the second. Descriptors that a failing
 * uv_loop_init() forgets are libuv's own. */
TEST(loop, without_file_descriptors_is_refused_and_loses_no_memory)
{
    struct rlimit limit;
    CHECK_INT_EQ(try_loop(NULL), 0);
    CHECK_INT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    rlim_t before = limit.rlim_cur;
    int rc = -1;
    for (int some = 0; rc < 0; some++) {
        CHECK(some < 20);
        limit.rlim_cur = (rlim_t)lowest_free_fd() + (rlim_t)some;
        CHECK_INT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
        rc = try_loop(NULL);
        limit.rlim_cur = before;
        CHECK_INT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
        CHECK(rc == 0 || rc == UV_EMFILE);
        CHECK(some > 0 || rc < 0);
    }
}

/* ---- the thread pool ---------------------------------------------------- */

static vow_next answer(vow_job *job, void *arg)
{
    (void)job;
    return vow_ok(vow_int(*(int *)arg));
}

/* The future of a job is rejected with this code; a later one runs. */
static void check_work_refused(enum call c, int nth)
{
    struct world w;
    int number = 7;
    world_open(&w);
    refuse[c] = nth;
    vow_future *f = vow_work(w.loop, answer, &number);
    CHECK_INT_EQ(refuse[c], 0);
    CHECK_INT_EQ(code_of(f), UV_EAGAIN);
    vow_future_unref(f);
    f = vow_work(w.loop, answer, &number);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), 0);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 7);
    vow_future_unref(f);
    world_close(&w);
}

TEST(work, without_a_mutex_is_rejected_and_comes_back_later)
{
    check_work_refused(MUTEX, 1);
}

TEST(work, without_a_condition_is_rejected_and_comes_back_later)
{
    check_work_refused(COND, 1);
    check_work_refused(COND, 2);
}

TEST(work, without_any_thread_is_rejected_and_comes_back_later)
{
    check_work_refused(THREAD, 1);
}

static vow_next wait_for_it(vow_job *job, void *arg)
{
    (void)job;
    while (sem_wait(arg) < 0)
        CHECK_INT_EQ(errno, EINTR);
    return vow_ok(vow_nothing());
}

TEST(work, fewer_threads_than_wished_do_the_work)
{
    struct world w;
    sem_t go;
    int number = 7;
    CHECK_INT_EQ(sem_init(&go, 0, 0), 0);
    world_open_with(&w, VOW_LOOP_OPTS(.work_threads = 4));
    vow_future *first = vow_work(w.loop, wait_for_it, &go);
    refuse[THREAD] = ALWAYS;
    vow_future *second = vow_work(w.loop, answer, &number);
    CHECK_INT_EQ(vow_state_of(second), VOW_PENDING);
    CHECK_INT_EQ(sem_post(&go), 0);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, second), 0);
    CHECK_INT_EQ(vow_state_of(first), VOW_FULFILLED);
    vow_future_unref(first);
    vow_future_unref(second);
    world_close(&w);
}

/* ---- guards of stacks --------------------------------------------------- */

struct turns {
    vow_loop *loop;
    int done;
};

static vow_next take_turns(void *arg)
{
    struct turns *t = arg;
    char mine[2048];
    memset(mine, t->done, sizeof(mine));
    for (int i = 0; i < 10; i++) {
        CHECK_INT_EQ(vow_yield(t->loop), 0);
        for (size_t k = 1; k < sizeof(mine); k++)
            CHECK_INT_EQ(mine[k], mine[0]);
    }
    t->done++;
    return vow_ok(vow_nothing());
}

TEST(stack, on_an_old_kernel_fibers_run_with_guards_that_rotate)
{
    enum { FIBERS = 100 };
    struct world w;
    vow_future *f[FIBERS];
    vow_loop_stats st;
    refuse[GUARD] = ALWAYS;
    world_open_with(&w, VOW_LOOP_OPTS(.fiber_guards = 3));
    struct turns t = {.loop = w.loop};
    for (int i = 0; i < FIBERS; i++)
        f[i] = vow_async(w.loop, take_turns, &t);
    world_run(&w);
    CHECK_INT_EQ(t.done, FIBERS);
    vow_loop_stats_get(w.loop, &st);
    CHECK_UINT_EQ(st.guards_missing, 0);
    for (int i = 0; i < FIBERS; i++)
        vow_future_unref(f[i]);
    world_close(&w);
}

/* The kernel stops in the middle of a slab: those behind it rotate. */
TEST(stack, guard_refused_in_the_middle_of_a_mapping_rotates_from_there)
{
    enum { FIBERS = 60 };
    struct world w;
    vow_future *f[FIBERS];
    refuse[GUARD] = 20;
    world_open_with(&w, VOW_LOOP_OPTS(.fiber_guards = 2));
    struct turns t = {.loop = w.loop};
    for (int i = 0; i < FIBERS; i++)
        f[i] = vow_async_with(w.loop, take_turns, &t,
                              VOW_ASYNC_OPTS(.stack_size = 16384));
    CHECK_INT_EQ(refuse[GUARD], 0);
    world_run(&w);
    CHECK_INT_EQ(t.done, FIBERS);
    for (int i = 0; i < FIBERS; i++)
        vow_future_unref(f[i]);
    vow_loop_trim(w.loop);
    world_close(&w);
}

/* Goes down until there is no more; the sum keeps the compiler from a loop. */
static int overflow(int depth)
{
    volatile char frame[512];
    frame[0] = (char)depth;
    return depth == INT_MAX ? 0 : overflow(depth + 1) + frame[0];
}

static vow_next overflow_after_turns(void *arg)
{
    struct turns *t = arg;
    for (int i = 0; i < 10; i++)
        CHECK_INT_EQ(vow_yield(t->loop), 0);
    return vow_ok(vow_int(overflow(0)));
}

TEST_OPTS(stack, on_an_old_kernel_overflow_dies_at_a_guard_that_rotated,
          .expect_signal = SIGSEGV)
{
    enum { FIBERS = 20 };
    struct world w;
    refuse[GUARD] = ALWAYS;
    world_open_with(&w, VOW_LOOP_OPTS(.fiber_guards = 2));
    struct turns t = {.loop = w.loop};
    for (int i = 0; i < FIBERS; i++)
        (void)!vow_async(w.loop, i == 7 ? overflow_after_turns : take_turns,
                         &t);
    world_run(&w);
}
