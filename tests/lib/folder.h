/* SPDX-License-Identifier: MIT */
/* folder.h - a folder for one test, in memory where there is such a place. */
#ifndef TEST_FOLDER_H
#define TEST_FOLDER_H

enum { FOLDER_MAX = 64 };

struct folder {
    char path[FOLDER_MAX];
};

/* Make one, empty and with mode 0700; remove it with all that is in it. */
void folder_open(struct folder *f);
void folder_close(struct folder *f);

/* Remove what is at a path, whatever it is. */
void folder_remove(const char *path);

#endif
