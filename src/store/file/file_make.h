/* SPDX-License-Identifier: MIT */
/* file_make.h - a new file, and the end of an old one. See file_make.c. */
#ifndef VOW_STORE_FILE_MAKE_H
#define VOW_STORE_FILE_MAKE_H

#include "store/file/file_internal.h"

enum {
    VOW__FILE_APPLICATION = 0x766f7721, /* "vow!", in the head of the file */
    VOW__FILE_VERSION = 2,
    VOW__FILE_VERSION_OLDEST = 1 /* that can be upgraded */
};

/* Which boot this is, and whose clock. */
int vow__file_boot_read(struct vow__file *s);
/* Is the file of this boot and clock? */
int vow__file_clock_ours(struct vow__file *s, bool *ret_ours);
int vow__file_pragma(struct vow__file *s, const char *sql, int64_t *ret_value);
void vow__file_path(const char *folder, const char *name,
                    char path[FILE_PATH_MAX + 32]);

#endif
