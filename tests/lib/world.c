/* SPDX-License-Identifier: MIT */
/* world.c - the counting allocator, and the loop that tests run in.
 *
 *     | test_block | the block as asked for | tail |
 *
 * The tail is a known number, looked at when the block is freed.
 * AddressSanitizer has better guards there, which see reads too: its builds
 * have no tail.
 */
#define _GNU_SOURCE 1
#include "world.h"
#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAIL = TEST_ASAN ? 0 : 8, FILL_NEW = 0xA5, FILL_FREED = 0x5A };

static const uint64_t MAGIC_LIVE = UINT64_C(0x6c6976656c697665);
static const uint64_t MAGIC_FREED = UINT64_C(0x6465616464656164);
static const unsigned char TAIL_BYTES[8] = "\xC3TAIL!\x3C";

/* libc writes its own words into the first 16 bytes of what was freed: `magic`
 * lies behind them, so that a second free is seen. */
struct test_block {
    alignas(max_align_t) struct test_block *next;
    struct test_block *prev;
    size_t size;
    uint64_t magic;
    uint64_t number; /* which allocation made it */
};

struct text {
    char chars[1000];
    size_t len;
    int lines;
};

/* ---- the allocator ------------------------------------------------------ */

/* libc's malloc orders nothing between threads. Ours must not either: TSan
 * would take our mutex for the library's missing one and stay silent. */
#if TEST_TSAN
void AnnotateIgnoreSyncBegin(const char *file, int line);
void AnnotateIgnoreSyncEnd(const char *file, int line);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
#define UNSEEN(what)                                                           \
    (AnnotateIgnoreSync##what(__FILE__, __LINE__),                             \
     AnnotateIgnoreReads##what(__FILE__, __LINE__),                            \
     AnnotateIgnoreWrites##what(__FILE__, __LINE__))
#else
#define UNSEEN(what) ((void)0)
#endif

static void lock(struct test_alloc *ta)
{
    UNSEEN(Begin);
    pthread_mutex_lock(&ta->lock);
}

static void unlock(struct test_alloc *ta)
{
    pthread_mutex_unlock(&ta->lock);
    UNSEEN(End);
}

void test_alloc_init(struct test_alloc *ta)
{
    *ta = (struct test_alloc){.allocs = 0};
    pthread_mutex_init(&ta->lock, NULL);
}

__attribute__((format(printf, 2, 3))) static void add(struct text *t,
                                                      const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n =
        vsnprintf(t->chars + t->len, sizeof(t->chars) - t->len, format, args);
    va_end(args);
    t->len += (size_t)n;
    if (t->len >= sizeof(t->chars))
        t->len = sizeof(t->chars) - 1;
    t->lines++;
}

void test_alloc_fini(const char *site, struct test_alloc *ta)
{
    struct text t = {.len = 0};
    for (const struct test_block *b = ta->blocks; b != NULL && t.lines < 6;
         b = b->next)
        add(&t, "%s number %llu (%zu bytes)", t.lines == 0 ? "" : ",",
            (unsigned long long)b->number, b->size);
    if (ta->live_blocks > 0)
        test_fail(site, "lost %zu blocks of %zu bytes, the newest:%s",
                  ta->live_blocks, ta->live_bytes, t.chars);
    pthread_mutex_destroy(&ta->lock);
}

static struct test_block *checked_block(void *ptr, size_t old_size)
{
    if (ptr == NULL) {
        if (old_size != 0)
            test_fail("allocator", "no block, but an old size of %zu",
                      old_size);
        return NULL;
    }
    struct test_block *b = (struct test_block *)ptr - 1;
    if (b->magic != MAGIC_LIVE)
        test_fail("allocator", "block %p was %s", ptr,
                  b->magic == MAGIC_FREED ? "freed before"
                                          : "never ours, or is damaged");
    if (b->size != old_size)
        test_fail("allocator",
                  "old size of block number %llu, got %zu, want %zu",
                  (unsigned long long)b->number, old_size, b->size);
    if (memcmp((char *)ptr + old_size, TAIL_BYTES, TAIL) != 0)
        test_fail("allocator", "a write behind block number %llu of %zu bytes",
                  (unsigned long long)b->number, b->size);
    return b;
}

/* Counts a growth and says whether the plan refuses it. */
static uint64_t number_or_refuse(struct test_alloc *ta)
{
    lock(ta);
    uint64_t number = ++ta->allocs;
    if (ta->fail_at != 0 &&
        (number == ta->fail_at || (ta->fail_forever && number > ta->fail_at))) {
        ta->fails++;
        number = 0;
    }
    unlock(ta);
    return number;
}

static struct test_block *new_block(size_t size, uint64_t number)
{
    struct test_block *b = malloc(sizeof(*b) + size + TAIL);
    if (b == NULL)
        return NULL;
    *b = (struct test_block){
        .size = size, .magic = MAGIC_LIVE, .number = number};
    memset(b + 1, FILL_NEW, size);
    memcpy((char *)(b + 1) + size, TAIL_BYTES, TAIL);
    return b;
}

/* One block takes the other's place in the list; both may be NULL. */
static void exchange(struct test_alloc *ta, struct test_block *out,
                     struct test_block *in)
{
    lock(ta);
    if (out != NULL) {
        *(out->prev == NULL ? &ta->blocks : &out->prev->next) = out->next;
        if (out->next != NULL)
            out->next->prev = out->prev;
        ta->live_blocks--;
        ta->live_bytes -= out->size;
    }
    if (in != NULL) {
        in->next = ta->blocks;
        if (in->next != NULL)
            in->next->prev = in;
        ta->blocks = in;
        ta->live_blocks++;
        ta->live_bytes += in->size;
        if (ta->live_bytes > ta->peak_bytes)
            ta->peak_bytes = ta->live_bytes;
    }
    unlock(ta);
}

static void *test_realloc(void *ctx, void *ptr, size_t old_size,
                          size_t new_size)
{
    struct test_alloc *ta = ctx;
    struct test_block *old = checked_block(ptr, old_size), *b = NULL;
    if (new_size > 0) {
        uint64_t number = old == NULL ? 0 : old->number;
        if (new_size > old_size && (number = number_or_refuse(ta)) == 0)
            return NULL;
        b = new_block(new_size, number);
        if (b == NULL)
            return NULL;
        if (old != NULL)
            memcpy(b + 1, ptr, old_size < new_size ? old_size : new_size);
    }
    exchange(ta, old, b);
    if (old != NULL) {
        memset(ptr, FILL_FREED, old_size);
        old->magic = MAGIC_FREED;
        /* Else the compiler drops both as dead stores. */
        __asm__ volatile("" : : "r"(old) : "memory");
        free(old);
    }
    return b == NULL ? NULL : b + 1;
}

struct vow_alloc test_alloc_hook(struct test_alloc *ta)
{
    return (struct vow_alloc){.fn = test_realloc, .ctx = ta};
}

/* ---- the world ---------------------------------------------------------- */

static void on_unhandled(vow_error *error, const char *site, void *user)
{
    struct world *w = user;
    const int code = vow_error_code(error);
    if (w->sweep && w->alloc.fails > 0 &&
        vow_error_code(vow_error_root(error)) == VOW_ENOMEM)
        return;
    w->unhandled++;
    w->unhandled_closed += code == VOW_ECLOSED;
    w->unhandled_code = code;
    snprintf(w->unhandled_site, sizeof(w->unhandled_site), "%s",
             site == NULL ? "(NULL)" : site);
    snprintf(w->unhandled_message, sizeof(w->unhandled_message), "%s",
             vow_error_message(error));
}

static bool unpooled(const struct world *w)
{
    const char *env = getenv("VOW_TEST_UNPOOLED");
    return TEST_ASAN || TEST_TSAN || w->sweep ||
           (env != NULL && strcmp(env, "1") == 0);
}

int world_try_open(struct world *w, const vow_loop_opts *extra)
{
    vow_loop_opts opts = {.size = sizeof(opts)};
    if (extra != NULL)
        opts = *extra;
    if ((opts.flags & WORLD_REAL_TIME) == 0)
        opts.flags |= VOW_LOOP_VIRTUAL_TIME;
    opts.flags &= ~WORLD_REAL_TIME;
    if (unpooled(w))
        opts.flags |= VOW_LOOP_UNPOOLED;
    if (opts.alloc.fn == NULL)
        opts.alloc = test_alloc_hook(&w->alloc);
    if (opts.on_unhandled == NULL) {
        opts.on_unhandled = on_unhandled;
        opts.on_unhandled_user = w;
    }
    if (opts.seed == 0)
        opts.seed = test_seed();
    return vow_loop_new(&opts, &w->loop);
}

void world_open_at(const char *site, struct world *w,
                   const vow_loop_opts *extra)
{
    *w = (struct world){.loop = NULL};
    test_alloc_init(&w->alloc);
    world_rc(site, "vow_loop_new", world_try_open(w, extra));
}

void world_rc(const char *site, const char *what, int rc)
{
    if (rc != 0)
        test_fail(site, "%s, got %d (%s), want 0", what, rc,
                  vow_error_name(rc));
}

void world_expect_unhandled(struct world *w, uint64_t n)
{
    w->unhandled_want = n;
}

static void add_site(const vow_census *line, void *user)
{
    struct text *t = user;
    if (t->lines < 12)
        add(t, "\n    %s: %zu pending, %zu settled", line->site, line->pending,
            line->settled);
}

static void check_nothing_alive(const char *site, struct world *w)
{
    struct text t = {.len = 0};
    vow_loop_stats st;
    vow_loop_stats_get(w->loop, &st);
    const struct {
        const char *what;
        size_t n;
    } alive[] = {{"futures", st.futures},
                 {"fibers", st.fibers},
                 {"timers", st.timers},
                 {"scopes", st.scopes},
                 {"jobs", st.jobs}};
    for (size_t i = 0; i < sizeof(alive) / sizeof(alive[0]); i++)
        if (alive[i].n > 0)
            add(&t, "%s%zu %s", t.lines == 0 ? "" : ", ", alive[i].n,
                alive[i].what);
    if (t.lines == 0)
        return;
    w->alloc.fail_at = 0; /* the census needs memory */
    if (st.futures > 0 && vow_loop_census(w->loop, add_site, &t) < 0)
        add(&t, " (there is no census)");
    test_fail(site, "still alive: %s", t.chars);
}

static void check_unhandled(const char *site, const struct world *w, bool dirty)
{
    if (w->unhandled == w->unhandled_want)
        return;
    if (dirty && w->unhandled - w->unhandled_closed == w->unhandled_want)
        return;
    if (w->unhandled == 0)
        test_fail(site, "unhandled rejections, got 0, want %llu",
                  (unsigned long long)w->unhandled_want);
    test_fail(site,
              "unhandled rejections, got %llu, want %llu; the last: %s, %s, "
              "of the promise made at %s",
              (unsigned long long)w->unhandled,
              (unsigned long long)w->unhandled_want,
              vow_error_name(w->unhandled_code), w->unhandled_message,
              w->unhandled_site);
}

void world_close_at(const char *site, struct world *w, bool dirty)
{
    if (!dirty) {
        vow_loop_adopt(w->loop); /* from a thread that has ended, perhaps */
        check_nothing_alive(site, w);
    }
    world_rc(site, "vow_loop_close", vow_loop_close(w->loop));
    w->loop = NULL;
    check_unhandled(site, w, dirty);
    test_alloc_fini(site, &w->alloc);
}
