/* SPDX-License-Identifier: MIT */
/* names.h - names that end in ".test" are looked up by the test: this program's
 * getaddrinfo() is found before libc's, also by libuv. All other
 * names go to libc's.
 */
#ifndef TEST_NAMES_H
#define TEST_NAMES_H

#include <pthread.h>
#include <stdbool.h>

enum { NAMES_ADDRESSES = 4 };

/* What each of them is: set before it is asked for. */
struct names {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const char *addresses[NAMES_ADDRESSES]; /* up to a NULL */
    int error;
    bool blocked; /* until the test says so */
    bool asked;
    int masked; /* how many asked with all signals blocked */
};
extern struct names names;

void names_block(bool blocked);
void names_wait_until_asked(void);

#endif
