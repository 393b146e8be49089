/* SPDX-License-Identifier: MIT */
/* findings.h - what a store's examine() has told, kept for a test. */
#ifndef TEST_FINDINGS_H
#define TEST_FINDINGS_H

#include "harness.h"

#include <stdio.h>
#include <string.h>
#include <vow/store.h>

enum { FINDINGS_MAX = 64 };

struct findings {
    unsigned done;
    int code;
    size_t n;
    struct {
        uint32_t level;
        char what[32];
        char text[512];
        char advice[512];
    } at[FINDINGS_MAX];
};

/* For examine(); `user` is a struct findings. What is good needs no advice, and
 * all else has one. */
static inline void on_findings(int code, const vow_finding *findings, size_t n,
                               void *user)
{
    struct findings *f = user;
    f->done++;
    f->code = code;
    f->n = n;
    CHECK(n <= FINDINGS_MAX);
    for (size_t i = 0; i < n; i++) {
        f->at[i].level = findings[i].level;
        snprintf(f->at[i].what, sizeof(f->at[i].what), "%s", findings[i].what);
        snprintf(f->at[i].text, sizeof(f->at[i].text), "%s", findings[i].text);
        snprintf(f->at[i].advice, sizeof(f->at[i].advice), "%s",
                 findings[i].advice);
        CHECK((findings[i].advice[0] == 0) ==
              (findings[i].level == VOW_FINDING_GOOD));
    }
}

/* That thing has this level, and this text. */
static inline void check_finding(const struct findings *f, const char *what,
                                 uint32_t level, const char *text)
{
    CHECK_INT_EQ(f->code, 0);
    for (size_t i = 0; i < f->n; i++) {
        if (strcmp(f->at[i].what, what) != 0)
            continue;
        if (f->at[i].level != level || strstr(f->at[i].text, text) == NULL)
            FAIL("%s is %u: %s", what, f->at[i].level, f->at[i].text);
        return;
    }
    FAIL("nothing is said of %s", what);
}

#endif
