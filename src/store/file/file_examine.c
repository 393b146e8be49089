/* SPDX-License-Identifier: MIT */
/* file_examine.c - looking at a folder as a doctor would.
 *
 * HOW   What makes a folder unfit is found when it is opened, see
 *       file_folder.c: so most of this tells people what they have. A disk
 *       that fills up, a log that grows because somebody reads without an end,
 *       and damage show only here before they hurt. Nothing is changed.
 * LIMITS  All of the file is read once, to find damage.
 * THREADS  loop thread only.
 */
#include "store/file/file_rows.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

enum {
    FINDINGS = 7,
    TEXT_MAX = FILE_PATH_MAX + 128,
    FIXED_VERSION = 3051003, /* of SQLite: log and checkpoint cannot cross */
    TMPFS = 0x01021994
};
#define MB ((uint64_t)1024 * 1024)
#define LOW_BYTES (64 * MB)
#define FULL_BYTES (4 * MB)
#define LONG_LOG (64 * MB)

struct exam {
    size_t n;
    vow_finding at[FINDINGS];
    char text[FINDINGS][TEXT_MAX];
    bool damaged;
    char damage[128];
};

static int damage_step(struct vow__file *s, void *arg);
static void judge_folder(struct vow__file *s, struct exam *e);
static void judge_system(struct vow__file *s, struct exam *e);
static const char *system_name(uint32_t type);
static void judge_sqlite(struct exam *e);
static void judge_files(struct vow__file *s, struct exam *e);
static void judge_damage(struct exam *e);
static void judge_lost(struct vow__file *s, struct exam *e);
static void judge_processes(struct vow__file *s, struct exam *e);
static uint64_t size_of(struct vow__file *s, const char *file);
static void add(struct exam *e, uint32_t level, const char *what,
                const char *advice, const char *format, ...) VOW_PRINTF(5, 6);

void vow__file_examine(vow_store *store, vow_findings_fn done, void *user)
{
    struct vow__file *s = vow__file_of(store);
    struct exam *e = vow__mem_zero(&s->alloc, sizeof(*e));
    int code = e == NULL ? VOW_ENOMEM : 0;
    if (code == 0)
        code = vow__file_step(s, VOW__FILE_READ, damage_step, e);
    if (code == 0) {
        judge_folder(s, e);
        judge_system(s, e);
        judge_sqlite(e);
        judge_files(s, e);
        judge_damage(e);
        judge_lost(s, e);
        judge_processes(s, e);
    }
    done(code, code == 0 ? e->at : NULL, code == 0 ? e->n : 0, user);
    vow__mem_free(&s->alloc, e, sizeof(*e));
}

static void add(struct exam *e, uint32_t level, const char *what,
                const char *advice, const char *format, ...)
{
    char *text = e->text[e->n];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, TEXT_MAX, format, args);
    va_end(args);
    e->at[e->n++] = (vow_finding){
        .level = level, .what = what, .text = text, .advice = advice};
}

/* ---- where it is --------------------------------------------------------- */

static void judge_folder(struct vow__file *s, struct exam *e)
{
    struct stat st;
    if (fstat(s->dir, &st) != 0) {
        add(e, VOW_FINDING_BAD, "folder", "Look whether somebody removed it.",
            "%s: %s", s->folder, strerror(errno));
        return;
    }
    bool open = st.st_uid != geteuid() || (st.st_mode & 077) != 0;
    add(e, open ? VOW_FINDING_BAD : VOW_FINDING_GOOD, "folder",
        open ? "Others can give out false results: remove it." : "",
        "%s, of user %ld, mode %04o", s->folder, (long)st.st_uid,
        (unsigned)(st.st_mode & 07777));
}

static void judge_system(struct vow__file *s, struct exam *e)
{
    struct statfs fs;
    char unknown[32];
    if (fstatfs(s->dir, &fs) != 0) {
        add(e, VOW_FINDING_BAD, "file system", "Look at the disk.", "%s",
            strerror(errno));
        return;
    }
    uint64_t room = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
    const char *name = system_name((uint32_t)fs.f_type);
    (void)snprintf(unknown, sizeof(unknown), "type %#lx",
                   (unsigned long)fs.f_type);
    add(e,
        room < FULL_BYTES  ? VOW_FINDING_BAD
        : room < LOW_BYTES ? VOW_FINDING_WARN
                           : VOW_FINDING_GOOD,
        "file system",
        room < LOW_BYTES ? "Steps that write fail when it is full: make room."
                         : "",
        "%s, %llu MB free%s", name == NULL ? unknown : name,
        (unsigned long long)(room / MB),
        (uint32_t)fs.f_type == TMPFS ? "; in memory, so a reboot empties it"
                                     : "");
}

static const char *system_name(uint32_t type)
{
    static const struct {
        uint32_t type;
        const char *name;
    } all[] = {{0xef53, "ext4"},        {0x58465342, "xfs"},
               {0x9123683e, "btrfs"},   {TMPFS, "tmpfs"},
               {0x794c7630, "overlay"}, {0x2fc12fc1, "zfs"},
               {0xf2f52010, "f2fs"},    {0x858458f6, "ramfs"}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i].type == type)
            return all[i].name;
    return NULL;
}

/* ---- the file ------------------------------------------------------------ */

static void judge_sqlite(struct exam *e)
{
    bool fixed = sqlite3_libversion_number() >= FIXED_VERSION;
    add(e, VOW_FINDING_GOOD, "sqlite", "", "%s%s", sqlite3_libversion(),
        fixed ? ""
              : "; before 3.51.3 a checkpoint that meets a writer can damage "
                "the file, so here they never meet");
}

static void judge_files(struct vow__file *s, struct exam *e)
{
    uint64_t log = size_of(s, "vow.db-wal");
    bool is_long = log > LONG_LOG;
    add(e, is_long ? VOW_FINDING_WARN : VOW_FINDING_GOOD, "log",
        is_long ? "Somebody has been reading for long and keeps it from "
                  "ending: look for a process that is stopped."
                : "",
        "%.1f MB, and the file has %.1f MB", (double)log / (double)MB,
        (double)size_of(s, "vow.db") / (double)MB);
}

static uint64_t size_of(struct vow__file *s, const char *file)
{
    struct stat st;
    if (fstatat(s->dir, file, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return 0;
    return (uint64_t)st.st_size;
}

static int damage_step(struct vow__file *s, void *arg)
{
    struct exam *e = arg;
    int rc;
    sqlite3_stmt *q = vow__file_sql(s, "PRAGMA quick_check(1)");
    if (!vow__file_row(s, q, &rc))
        return rc;
    vow__file_text_read(q, 0, e->damage, sizeof(e->damage));
    e->damaged = strcmp(e->damage, "ok") != 0;
    (void)sqlite3_reset(q);
    return 0;
}

static void judge_damage(struct exam *e)
{
    add(e, e->damaged ? VOW_FINDING_BAD : VOW_FINDING_GOOD, "damage",
        e->damaged ? "Remove the folder when nobody uses it: all in it can be "
                     "made again."
                   : "",
        "%s", e->damaged ? e->damage : "none");
}

static void judge_lost(struct vow__file *s, struct exam *e)
{
    char why[FILE_LOST_MAX] = "";
    if (vow__file_lost_read(s, why))
        add(e, VOW_FINDING_WARN, "lost",
            "Nothing is begun with --once until somebody has found out what "
            "had been begun, and removes the file 'lost' in the folder.",
            "the records: %s", why);
}

/* ---- who takes part ------------------------------------------------------ */

static void judge_processes(struct vow__file *s, struct exam *e)
{
    unsigned char id[FILE_ID];
    unsigned alive = 0;
    unsigned dead = 0;
    int fd = openat(s->dir, "live", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *at;
    while (dir != NULL && (at = readdir(dir)) != NULL) {
        if (!vow__file_unhex(at->d_name, id))
            continue;
        bool gone = vow__file_gone(s, id);
        bool ours = s->joined && memcmp(id, s->id, FILE_ID) == 0;
        dead += gone;
        alive += !gone && !ours;
    }
    if (dir != NULL)
        (void)closedir(dir);
    else if (fd >= 0)
        (void)close(fd);
    add(e, VOW_FINDING_GOOD, "processes", "", "%u take part%s", alive,
        dead > 0 ? "; some that died are not swept yet" : "");
}
