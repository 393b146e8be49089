/* SPDX-License-Identifier: MIT */
/* file_cache.c - results that a command finds without opening the database.
 *
 * WHY   Opening the database costs several times what the rest of `vow share`
 *       with a cached result costs: SQLite reads the log and the schema.
 * HOW   The file `cache` has SLOTS slots. A name has one slot, by its hash, and
 *       a slot has one result: the record, and the value or the name of the
 *       file of the value. A store whose folder has a valid cache opens the
 *       database with the first step that needs it. The first claim looks into
 *       the slot. If the claim then finds a result in the database, the result
 *       goes into the slot, for the next process.
 *       The first page of the cache has a stamp per slot; a slot counts while
 *       the slot has the same stamp. Stamps are random, 0 is none. A reader
 *       reads the stamp before and after the slot: both must be the stamp in
 *       the slot. So the reader has read all of one result, and at that time no
 *       step had replaced the result.
 *       The header names boot, clock and database: the cache of another one
 *       does not count.
 * INVARIANTS
 *   K1  stamps, slots and the file itself change only in a write step, that is,
 *       under the write lock of the database
 *   K2  a step that replaces or removes a result clears the stamp before the
 *       step commits
 *   K3  a slot gets a stamp only in a step that finds the result in the
 *       database
 * LIMITS  Results of mode VOW_SHARED whose slot is at most SLOT_SIZE long, and
 *       results with a file of their own. Two names with the same slot replace
 *       each other. The file has holes: it is as large as the results in it.
 * THREADS  loop thread only.
 */
#include "base/bytes.h"
#include "base/clock.h"
#include "store/file/file_make.h"
#include "store/file/file_rows.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    SLOTS = 256,
    SLOT_SIZE = 16 * 1024,
    SLOT_FIRST = 4096, /* bytes that are read at once */
    STAMPS_AT = 2048,
    SLOTS_AT = 4096,
    CACHE_FORMAT = 1
};

struct cache_head {
    char what[8]; /* "vowcache" */
    uint32_t format, version;
    char boot[FILE_BOOT_MAX];
    int64_t time_ns;
    uint64_t dev, ino; /* of vow.db */
};

/* The beginning of a slot; label, runner and value follow without NUL. */
struct slot_head {
    uint64_t stamp;
    vow_name name;
    uint64_t since_us, end_us;
    uint64_t epoch, first, cost_ms;
    uint64_t value_size;
    uint32_t takeovers;
    uint16_t label_size, runner_size, file_size;
    uint8_t failed;
    uint8_t zero[5]; /* no padding: all bytes are written */
};
_Static_assert(offsetof(struct slot_head, zero) + 5 == sizeof(struct slot_head),
               "bytes of the stack would go to the disk");

/* A claim that found nothing in the cache. */
struct cached_claim {
    struct vow__file *store;
    vow_records_fn done;
    void *user;
};

struct cache_fill {
    const vow_record *record;
};

static int cache_open(struct vow__file *s, int flags);
static void cache_head_of(const struct vow__file *s, const struct stat *db,
                          struct cache_head *h);
static int cache_create(struct vow__file *s);
static bool stamp_read(int fd, size_t slot, uint64_t *ret_stamp);
static bool stamp_write(int fd, size_t slot, uint64_t stamp);
static size_t slot_of(const vow_name *name);
static off_t slot_offset(size_t slot);
static bool claim_answered(struct vow__file *s,
                           const vow_claim_request *request,
                           vow_records_fn done, void *user);
static bool slot_answer(struct vow__file *s, int fd, const vow_name *name,
                        char *room, vow_record *r);
static bool slot_read(int fd, size_t slot, char *room);
static bool slot_value(struct vow__file *s, const struct slot_head *h,
                       const char *value, vow_bytes **ret_value);
static void on_claimed(int code, const vow_record *r, size_t n, void *claim);
static int fill_step(struct vow__file *s, void *fill);
static void slot_fill(struct vow__file *s, int fd, const vow_record *r,
                      const struct vow__file_row *row);

/* ---- the file ------------------------------------------------------------ */

bool vow__file_cache_usable(struct vow__file *s)
{
    int fd = cache_open(s, O_RDONLY);
    if (fd >= 0)
        (void)close(fd);
    return fd >= 0;
}

/* Opens the cache of this database; returns -1 if there is none. */
static int cache_open(struct vow__file *s, int flags)
{
    struct stat db;
    struct cache_head want;
    struct cache_head got;
    if (s->boot[0] == '\0' && vow__file_boot_read(s) < 0)
        return -1;
    if (!vow__file_same_folder(s) ||
        fstatat(s->dir, "vow.db", &db, AT_SYMLINK_NOFOLLOW) != 0)
        return -1;
    int fd = openat(s->dir, "cache", flags | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    cache_head_of(s, &db, &want);
    if (pread(fd, &got, sizeof(got), 0) == (ssize_t)sizeof(got) &&
        memcmp(&got, &want, sizeof(got)) == 0)
        return fd;
    (void)close(fd);
    return -1;
}

static void cache_head_of(const struct vow__file *s, const struct stat *db,
                          struct cache_head *h)
{
    memset(h, 0, sizeof(*h));
    memcpy(h->what, "vowcache", sizeof(h->what));
    h->format = CACHE_FORMAT;
    h->version = (uint32_t)VOW__FILE_VERSION;
    memcpy(h->boot, s->boot, strlen(s->boot));
    h->time_ns = s->time_ns;
    h->dev = db->st_dev;
    h->ino = db->st_ino;
}

/* Makes an empty cache, in the place of a cache of another database: keeps K1.
 * Returns the descriptor, or -1. */
static int cache_create(struct vow__file *s)
{
    const int flags = O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
    char page[SLOTS_AT] = {0};
    struct cache_head head;
    struct stat db;
    if (fstatat(s->dir, "vow.db", &db, AT_SYMLINK_NOFOLLOW) != 0)
        return -1;
    cache_head_of(s, &db, &head);
    memcpy(page, &head, sizeof(head));
    (void)unlinkat(s->dir, "cache.new", 0);
    int fd = openat(s->dir, "cache.new", flags, 0600);
    if (fd >= 0 && pwrite(fd, page, sizeof(page), 0) == (ssize_t)sizeof(page) &&
        renameat(s->dir, "cache.new", s->dir, "cache") == 0)
        return fd;
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

static bool stamp_read(int fd, size_t slot, uint64_t *ret_stamp)
{
    off_t at = STAMPS_AT + (off_t)(slot * sizeof(*ret_stamp));
    return pread(fd, ret_stamp, sizeof(*ret_stamp), at) ==
           (ssize_t)sizeof(*ret_stamp);
}

static bool stamp_write(int fd, size_t slot, uint64_t stamp)
{
    off_t at = STAMPS_AT + (off_t)(slot * sizeof(stamp));
    return pwrite(fd, &stamp, sizeof(stamp), at) == (ssize_t)sizeof(stamp);
}

static size_t slot_of(const vow_name *name)
{
    return name->hash[0] % SLOTS;
}

static off_t slot_offset(size_t slot)
{
    return SLOTS_AT + (off_t)slot * SLOT_SIZE;
}

/* ---- a result is replaced ------------------------------------------------- */

/* A cache that cannot be written is removed. */
int vow__file_cache_drop(struct vow__file *s, const vow_name *name)
{
    VOW__ASSERT(s->phase == FILE_WRITES);
    uint64_t stamp;
    size_t slot = slot_of(name);
    int fd = cache_open(s, O_RDWR);
    bool clear = fd >= 0 && stamp_read(fd, slot, &stamp) &&
                 (stamp == 0 || stamp_write(fd, slot, 0));
    if (fd >= 0)
        (void)close(fd);
    if (clear || unlinkat(s->dir, "cache", 0) == 0 || errno == ENOENT)
        return 0;
    return vow__file_fail_errno(s, "cache", errno);
}

/* ---- a claim -------------------------------------------------------------- */

void vow__file_cache_claim(vow_store *store, const vow_claim_request *request,
                           vow_records_fn done, void *user)
{
    struct vow__file *s = vow__file_of(store);
    struct cached_claim claim = {.store = s, .done = done, .user = user};
    bool first = !s->claimed;
    s->claimed = true;
    if (!first || request->refresh != 0) { /* the answer may lack the value */
        vow__file_claim(store, request, done, user);
        return;
    }
    if (s->db == NULL && getpid() == s->pid &&
        claim_answered(s, request, done, user))
        return;
    vow__file_claim(store, request, on_claimed, &claim);
}

/* Answers a claim from the cache. A claim of a waiter, and a claim that does
 * not want a result, go to the database. */
static bool claim_answered(struct vow__file *s,
                           const vow_claim_request *request,
                           vow_records_fn done, void *user)
{
    char label[VOW_LABEL_MAX + 1] = "";
    char runner[VOW_LABEL_MAX + 1] = "";
    vow_record r = {.name = request->name, .label = label, .runner = runner};
    if ((request->flags & VOW_CLAIM_FORCE) != 0 || request->waited != 0 ||
        request->mode > VOW_ONCE || request->floor > RULES_EPOCH_MAX)
        return false;
    char *room = vow__mem_new(&s->alloc, SLOT_SIZE);
    int fd = room == NULL ? -1 : cache_open(s, O_RDONLY);
    bool found = fd >= 0 && slot_answer(s, fd, &request->name, room, &r);
    if (found) {
        struct slot_head h;
        memcpy(&h, room, sizeof(h));
        memcpy(label, room + sizeof(h), h.label_size);
        memcpy(runner, room + sizeof(h) + h.label_size, h.runner_size);
    }
    if (fd >= 0)
        (void)close(fd);
    vow__mem_free(&s->alloc, room, SLOT_SIZE);
    if (found)
        done(0, &r, 1, user);
    vow_bytes_unref(r.value);
    return found;
}

/* Reads the slot of the name; false: there is no valid result. */
static bool slot_answer(struct vow__file *s, int fd, const vow_name *name,
                        char *room, vow_record *r)
{
    uint64_t before;
    uint64_t after;
    struct slot_head h;
    size_t slot = slot_of(name);
    if (!stamp_read(fd, slot, &before) || before == 0 ||
        !slot_read(fd, slot, room))
        return false;
    memcpy(&h, room, sizeof(h));
    s->now_us = s->clock_us();
    if (h.stamp != before || !vow_name_equal(&h.name, name) ||
        h.end_us <= (uint64_t)s->now_us)
        return false;
    const char *value = room + sizeof(h) + h.label_size + h.runner_size;
    if (!slot_value(s, &h, value, &r->value) || !stamp_read(fd, slot, &after) ||
        after != before)
        return false;
    const struct rules_record record = {.state = h.failed != 0 ? RULES_FAILED
                                                               : RULES_DONE,
                                        .takeovers = h.takeovers,
                                        .epoch = h.epoch,
                                        .first = h.first,
                                        .since_us = h.since_us,
                                        .end_us = h.end_us,
                                        .cost_ms = h.cost_ms};
    vow_record answer = vow__file_record_of(s, &record, VOW_STATUS_SETTLED);
    answer.name = r->name;
    answer.label = r->label;
    answer.runner = r->runner;
    answer.value = r->value;
    *r = answer;
    return true;
}

/* Reads all of a slot that has sound sizes. */
static bool slot_read(int fd, size_t slot, char *room)
{
    struct slot_head h;
    off_t at = slot_offset(slot);
    ssize_t n = pread(fd, room, SLOT_FIRST, at);
    if (n < (ssize_t)sizeof(h))
        return false;
    memcpy(&h, room, sizeof(h));
    if (h.label_size > VOW_LABEL_MAX || h.runner_size > VOW_LABEL_MAX ||
        h.file_size >= FILE_NAME_MAX)
        return false;
    size_t size = sizeof(h) + h.label_size + h.runner_size;
    if (h.file_size > 0)
        size += h.file_size;
    else if (h.value_size <= SLOT_SIZE)
        size += h.value_size;
    if (size > SLOT_SIZE || (h.file_size == 0 && h.value_size > SLOT_SIZE))
        return false;
    if (size <= (size_t)n)
        return true;
    return n == SLOT_FIRST && pread(fd, room + n, size - SLOT_FIRST, at + n) ==
                                  (ssize_t)(size - SLOT_FIRST);
}

static bool slot_value(struct vow__file *s, const struct slot_head *h,
                       const char *value, vow_bytes **ret_value)
{
    char file[FILE_NAME_MAX] = "";
    if (h->file_size > 0) {
        memcpy(file, value, h->file_size);
        return vow__file_value_read(s, file, (int64_t)h->value_size,
                                    ret_value) == 0;
    }
    return h->value_size == 0 ||
           vow__bytes_make(&s->alloc, value, h->value_size, ret_value) == 0;
}

/* ---- a result is added ---------------------------------------------------- */

/* The caller has the answer first. */
static void on_claimed(int code, const vow_record *r, size_t n, void *claim)
{
    const struct cached_claim *c = claim;
    struct vow__file *s = c->store;
    struct cache_fill fill = {.record = r};
    c->done(code, r, n, c->user);
    if (code == 0 && n == 1 && r->status == VOW_STATUS_SETTLED &&
        r->mode == VOW_SHARED && s->closing == NULL)
        (void)vow__file_step(s, VOW__FILE_FREE, fill_step, &fill);
}

/* Adds the result to the cache, if the database still has the result: keeps
 * K3. A step that would have to wait adds nothing: keeps K1. */
static int fill_step(struct vow__file *s, void *fill)
{
    const vow_record *r = ((struct cache_fill *)fill)->record;
    struct vow__file_row row;
    if (s->phase != FILE_WRITES)
        return 0;
    int rc = vow__file_row_find(s, &r->name, &row);
    bool there =
        rc == 0 && row.record.epoch == r->epoch &&
        (row.record.state == RULES_DONE || row.record.state == RULES_FAILED) &&
        vow__rules_view(&row.record, (uint64_t)s->now_us) == RULES_VIEW_SETTLED;
    if (!there)
        return rc;
    int fd = cache_open(s, O_RDWR);
    if (fd < 0)
        fd = cache_create(s);
    if (fd < 0)
        return 0;
    slot_fill(s, fd, r, &row);
    (void)close(fd);
    return 0;
}

static void slot_fill(struct vow__file *s, int fd, const vow_record *r,
                      const struct vow__file_row *row)
{
    size_t slot = slot_of(&r->name);
    struct slot_head h = {.stamp = vow__clock_entropy() | 1,
                          .name = r->name,
                          .since_us = row->record.since_us,
                          .end_us = row->record.end_us,
                          .epoch = r->epoch,
                          .first = r->first,
                          .cost_ms = r->cost_ms,
                          .value_size = vow_bytes_size(r->value),
                          .takeovers = r->takeovers,
                          .label_size = (uint16_t)strlen(r->label),
                          .runner_size = (uint16_t)strlen(r->runner),
                          .file_size = (uint16_t)strlen(row->file),
                          .failed = r->failed};
    size_t texts = sizeof(h) + h.label_size + h.runner_size;
    size_t rest = h.file_size > 0 ? h.file_size : h.value_size;
    if (rest > SLOT_SIZE - texts)
        return;
    char *room = vow__mem_new(&s->alloc, texts + rest);
    if (room == NULL)
        return;
    memcpy(room, &h, sizeof(h));
    memcpy(room + sizeof(h), r->label, h.label_size);
    memcpy(room + sizeof(h) + h.label_size, r->runner, h.runner_size);
    if (h.file_size > 0)
        memcpy(room + texts, row->file, rest);
    else if (rest > 0)
        memcpy(room + texts, vow_bytes_data(r->value), rest);
    if (stamp_write(fd, slot, 0) &&
        pwrite(fd, room, texts + rest, slot_offset(slot)) ==
            (ssize_t)(texts + rest))
        (void)stamp_write(fd, slot, h.stamp);
    vow__mem_free(&s->alloc, room, texts + rest);
}
