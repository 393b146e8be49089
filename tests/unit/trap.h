/* SPDX-License-Identifier: MIT */
/* trap.h - tests that pass when an assertion of the library stops them. */
#ifndef TEST_TRAP_H
#define TEST_TRAP_H

#include "harness.h"

#include <signal.h>

/* What __builtin_trap() raises. */
#if defined(__x86_64__) || defined(__i386__)
#define TRAP_SIGNAL SIGILL
#else
#define TRAP_SIGNAL SIGTRAP
#endif

#define TEST_TRAPS(g, n) TEST_OPTS(g, n, .expect_signal = TRAP_SIGNAL)

#endif
