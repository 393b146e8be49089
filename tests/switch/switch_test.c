/* SPDX-License-Identifier: MIT */
/* switch_test.c - the switch between stacks, alone: no harness, no libuv, so
 * that it runs wherever there is a C library. tools/check-switch builds it in
 * every way that there is. */
#include "cases.h"

int main(void)
{
    static const struct {
        const char *name;
        const char *(*run)(void);
    } cases[] = {
#define ENTRY(name) {#name, name},
        SWITCH_CASES(ENTRY)
#undef ENTRY
    };
    int passed = 0;
    int failed = 0;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *wrong = cases[i].run();
        if (wrong == NULL) {
            passed++;
            continue;
        }
        failed++;
        printf("%s: %s\n", cases[i].name, wrong);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
