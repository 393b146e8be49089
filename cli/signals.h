/* SPDX-License-Identifier: MIT */
/* signals.h - signals as events of the loop.
 *
 * HOW   Those we care for are blocked and come by a signalfd. What was ignored
 *       when we were started stays ignored, for us and for jobs: nohup and
 *       background jobs of scripts work as ever. Jobs get the mask we got.
 */
#ifndef VOW_CLI_SIGNALS_H
#define VOW_CLI_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <vow.h>

/* `by_terminal`: the whole group in the foreground got it. */
typedef void (*signal_fn)(int number, bool by_terminal);

/* fn is called from the loop, not from a handler. SIGCHLD, INT, TERM, HUP,
 * QUIT, USR1, USR2, WINCH, TSTP. INT, TERM, HUP and QUIT that come again at
 * once are told once. SIGPIPE and SIGXFSZ become errors of write(). Needs
 * poller_open(). */
void signals_open(vow_loop *loop, signal_fn fn);
/* The mask for jobs. */
const sigset_t *signals_before(void);
/* Stop as Ctrl-Z does; returns when we go on. */
void signals_stop_us(void);
/* Die by that signal, as if we had never caught it. */
_Noreturn void signals_die(int number);

#endif
