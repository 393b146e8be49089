/* SPDX-License-Identifier: MIT */
/* names.c - a getaddrinfo() that tests hold in their hands. See names.h. */
#define _GNU_SOURCE 1
#include "names.h"

#include "harness.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct names names = {.lock = PTHREAD_MUTEX_INITIALIZER,
                      .changed = PTHREAD_COND_INITIALIZER};

/* One block for each address, as freeaddrinfo() below wants it. */
struct answer {
    struct addrinfo info;
    struct sockaddr_in at;
};
static const char ours[] = "ours";

static int answer(const char *port, struct addrinfo **ret_list)
{
    *ret_list = NULL;
    for (size_t i = 0; i < NAMES_ADDRESSES && names.addresses[i] != NULL; i++) {
        struct answer *a = calloc(1, sizeof(*a));
        CHECK(a != NULL);
        a->at.sin_family = AF_INET;
        a->at.sin_port = htons((uint16_t)strtoul(port, NULL, 10));
        CHECK(inet_pton(AF_INET, names.addresses[i], &a->at.sin_addr) == 1);
        a->info.ai_family = AF_INET;
        a->info.ai_addr = (struct sockaddr *)&a->at;
        a->info.ai_addrlen = sizeof(a->at);
        a->info.ai_canonname = (char *)(uintptr_t)ours;
        *ret_list = &a->info;
        ret_list = &a->info.ai_next;
    }
    return names.error;
}

static bool masked(void)
{
    sigset_t now;
    return pthread_sigmask(SIG_SETMASK, NULL, &now) == 0 &&
           sigismember(&now, SIGTERM) == 1 && sigismember(&now, SIGINT) == 1;
}

int getaddrinfo(const char *name, const char *service,
                const struct addrinfo *req, struct addrinfo **pai)
{
    size_t n = name == NULL ? 0 : strlen(name);
    if (n < 5 || strcmp(name + n - 5, ".test") != 0) {
        int (*real)(const char *, const char *, const struct addrinfo *,
                    struct addrinfo **);
        *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
        return real(name, service, req, pai);
    }
    (void)pthread_mutex_lock(&names.lock);
    names.asked = true;
    names.masked += masked() ? 1 : 0;
    (void)pthread_cond_broadcast(&names.changed);
    while (names.blocked)
        (void)pthread_cond_wait(&names.changed, &names.lock);
    int rc = answer(service, pai);
    (void)pthread_mutex_unlock(&names.lock);
    return rc;
}

void freeaddrinfo(struct addrinfo *ai)
{
    struct addrinfo *list = ai;
    if (list != NULL && list->ai_canonname != ours) {
        void (*real)(struct addrinfo *);
        *(void **)&real = dlsym(RTLD_NEXT, "freeaddrinfo");
        real(list);
        return;
    }
    while (list != NULL) {
        struct answer *a = (struct answer *)(void *)list;
        list = list->ai_next;
        free(a);
    }
}

void names_block(bool blocked)
{
    (void)pthread_mutex_lock(&names.lock);
    names.blocked = blocked;
    names.asked = names.asked && !blocked;
    (void)pthread_cond_broadcast(&names.changed);
    (void)pthread_mutex_unlock(&names.lock);
}

void names_wait_until_asked(void)
{
    (void)pthread_mutex_lock(&names.lock);
    while (!names.asked)
        (void)pthread_cond_wait(&names.changed, &names.lock);
    (void)pthread_mutex_unlock(&names.lock);
}
