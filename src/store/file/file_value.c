/* SPDX-License-Identifier: MIT */
/* file_value.c - the bytes of a result: in the row, or in a file of its own.
 *
 * HOW   A value longer than FILE_INLINE_MAX is written to a new file before the
 *       step that commits it, outside of any lock, and read outside of a write
 *       lock too. The row has the name of the file. A file that no row names
 *       any more is removed after the step that made it so; one that was left
 *       behind by somebody who died is found by file_sweep.c, from its name:
 *       the name of the work, and the instance that wrote it.
 *       A row whose file is missing or cut counts as gone.
 * THREADS  loop thread only.
 */
#include "base/bytes.h"
#include "store/file/file_rows.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PIECE = 1 << 20 }; /* of a read or write */

static void make_ready(const unsigned char *at, size_t size);
static int fill(int fd, unsigned char *to, size_t size);
static int join_step(struct vow__file *s, void *arg);
static int file_put(struct vow__file *s, const char *path, vow_bytes *bytes,
                    bool firm);
static int folder_sync(struct vow__file *s);
static void path_of(const char *file, char path[FILE_NAME_MAX + 8]);

int vow__file_value_get(struct vow__file *s, const struct vow__file_row *row,
                        bool left, vow_bytes **ret_bytes)
{
    sqlite3_stmt *q;
    char file[FILE_NAME_MAX];
    int rc;
    *ret_bytes = NULL;
    if (row->left && !left)
        return 0;
    if (left && !row->left) {
        q = vow__file_sql(
            s, "SELECT file,val FROM left_value WHERE h=?1 AND first=?2");
        vow__file_bind_int(q, 2, (int64_t)row->record.first);
    } else {
        q = vow__file_sql(s, "SELECT file,val FROM rec WHERE h=?1");
    }
    vow__file_bind(q, 1, row->name.hash, sizeof(row->name.hash));
    if (!vow__file_row(s, q, &rc))
        return rc == 0 ? VOW_ENOENT : rc;
    vow__file_text_read(q, 0, file, sizeof(file));
    if (file[0] != '\0') {
        int64_t size = sqlite3_column_int64(q, 1);
        (void)sqlite3_reset(q);
        return vow__file_value_read(s, file, size, ret_bytes);
    }
    const void *data = sqlite3_column_blob(q, 1);
    size_t size = (size_t)sqlite3_column_bytes(q, 1);
    if (size > 0 && data == NULL)
        rc = VOW_ENOMEM;
    else if (size > 0)
        rc = vow__bytes_make(&s->alloc, data, size, ret_bytes);
    (void)sqlite3_reset(q);
    return rc;
}

int vow__file_value_read(struct vow__file *s, const char *file, int64_t size,
                         vow_bytes **ret_bytes)
{
    char path[FILE_NAME_MAX + 8];
    struct stat st;
    path_of(file, path);
    if (strchr(file, '/') != NULL)
        return VOW_ENOENT;
    int fd = openat(s->dir, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? VOW_ENOENT
                               : vow__file_fail_errno(s, path, errno);
    int rc = VOW_ENOENT;
    if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && size > 0 &&
        st.st_size == size)
        rc = vow__bytes_room(&s->alloc, (size_t)size, ret_bytes);
    if (rc == 0) {
        make_ready(vow_bytes_data(*ret_bytes), (size_t)size);
        rc = fill(fd, vow_bytes_data(*ret_bytes), (size_t)size);
    }
    if (rc > 0)
        rc = vow__file_fail_errno(s, path, rc);
    if (rc != 0)
        *ret_bytes = vow_bytes_unref(*ret_bytes);
    (void)close(fd);
    return rc;
}

/* Fresh memory, all at once: to be given it page by page would take most of the
 * time of a look at a long result. */
static void make_ready(const unsigned char *at, size_t size)
{
#ifdef MADV_POPULATE_WRITE
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = ((uintptr_t)at + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)at + size) / page * page;
    if (end > first) /* a kernel that cannot says so, and no more */
        (void)madvise((void *)first, end - first, MADV_POPULATE_WRITE);
#else
    (void)at;
    (void)size;
#endif
}

/* 0, an errno, or VOW_ENOENT if it is shorter. */
static int fill(int fd, unsigned char *to, size_t size)
{
    while (size > 0) {
        ssize_t n = read(fd, to, size < PIECE ? size : PIECE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        if (n == 0)
            return VOW_ENOENT;
        to += n;
        size -= (size_t)n;
    }
    return 0;
}

int vow__file_value_write(struct vow__file *s, const vow_name *name,
                          vow_bytes *bytes, bool firm,
                          struct vow__file_value *out)
{
    char path[FILE_NAME_MAX + 8];
    char text[VOW_NAME_TEXT];
    *out = (struct vow__file_value){.bytes = bytes};
    if (vow_bytes_size(bytes) <= FILE_INLINE_MAX)
        return 0;
    int rc = vow__file_step(s, VOW__FILE_READ, join_step, NULL);
    if (rc < 0)
        return rc;
    (void)snprintf(out->file, sizeof(out->file), "%s.%s.%llx",
                   vow_name_text(name, text), s->hex,
                   (unsigned long long)++s->files);
    path_of(out->file, path);
    rc = file_put(s, path, bytes, firm);
    if (rc < 0)
        out->file[0] = '\0';
    return rc;
}

/* In a step, which makes sure that it is the right folder. */
static int join_step(struct vow__file *s, void *arg)
{
    (void)arg;
    return vow__file_join(s);
}

static int file_put(struct vow__file *s, const char *path, vow_bytes *bytes,
                    bool firm)
{
    const unsigned char *from = vow_bytes_data(bytes);
    size_t size = vow_bytes_size(bytes);
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(s->dir, path, flags, 0600);
    if (fd < 0 && errno == ENOENT && vow__file_make_folders(s) == 0)
        fd = openat(s->dir, path, flags, 0600);
    if (fd < 0)
        return vow__file_fail_errno(s, path, errno);
    int error = 0;
    while (size > 0 && error == 0) {
        ssize_t n = write(fd, from, size < PIECE ? size : PIECE);
        if (n < 0 && errno != EINTR)
            error = errno;
        if (n > 0) {
            from += n;
            size -= (size_t)n;
        }
    }
    if (error == 0 && firm && fsync(fd) != 0)
        error = errno;
    if (error == 0 && firm)
        error = folder_sync(s);
    if (close(fd) != 0 && error == 0)
        error = errno;
    if (error == 0)
        return 0;
    (void)unlinkat(s->dir, path, 0);
    return vow__file_fail_errno(s, path, error);
}

/* The name of a new file is on the disk. Returns 0 or an errno. */
static int folder_sync(struct vow__file *s)
{
    int fd = openat(s->dir, "val", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error = fd < 0 || fsync(fd) != 0 ? errno : 0;
    if (fd >= 0)
        (void)close(fd);
    return error;
}

void vow__file_value_bind(sqlite3_stmt *q, int at,
                          const struct vow__file_value *value)
{
    size_t size = value == NULL ? 0 : vow_bytes_size(value->bytes);
    if (size > 0 && value->file[0] != '\0')
        vow__file_bind_int(q, at, (int64_t)size);
    else if (size > 0)
        vow__file_bind(q, at, vow_bytes_data(value->bytes), size);
    else
        vow__file_bind(q, at, NULL, 0);
}

void vow__file_value_unlink(struct vow__file *s, const char *file)
{
    char path[FILE_NAME_MAX + 8];
    if (file[0] == '\0' || s->dir < 0 || strchr(file, '/') != NULL)
        return;
    path_of(file, path);
    (void)unlinkat(s->dir, path, 0);
}

static void path_of(const char *file, char path[FILE_NAME_MAX + 8])
{
    (void)snprintf(path, FILE_NAME_MAX + 8, "val/%s", file);
}

int vow__file_litter(struct vow__file *s, const char *file)
{
    char *at = vow__buf_push(&s->litter, FILE_NAME_MAX);
    if (at == NULL)
        return VOW_ENOMEM;
    memset(at, 0, FILE_NAME_MAX);
    memcpy(at, file, strnlen(file, FILE_NAME_MAX - 1));
    return 0;
}

void vow__file_litter_clear(struct vow__file *s)
{
    for (size_t at = 0; at < s->litter.n; at += FILE_NAME_MAX)
        vow__file_value_unlink(s, s->litter.bytes + at);
    vow__buf_clear(&s->litter);
}
