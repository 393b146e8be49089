/* SPDX-License-Identifier: MIT */
/* signals.h - signals as events of the loop.
 *
 * HOW   The handled signals are blocked and arrive by a signalfd. A signal that
 *       was ignored when vow started stays ignored, for vow and for jobs: nohup
 *       and background jobs of scripts work as usual. Jobs get the signal mask
 *       that vow got.
 */
#ifndef VOW_CLI_SIGNALS_H
#define VOW_CLI_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <vow.h>

/* `by_terminal`: the terminal sent the signal to the whole foreground group. */
typedef void (*signal_fn)(int number, bool by_terminal);

/* Blocks the signals, and calls `fn` from the loop, not from a handler, for
 * SIGCHLD, INT, TERM, HUP, QUIT, USR1, USR2, WINCH and TSTP. INT, TERM, HUP and
 * QUIT that repeat at once are reported once. SIGPIPE and SIGXFSZ become errors
 * of write(). Needs poller_open(). */
void signals_open(vow_loop *loop, signal_fn fn);
/* Returns the signal mask for jobs. */
const sigset_t *signals_before(void);
/* Stops vow as Ctrl-Z does; returns when vow continues. */
void signals_stop_us(void);
/* Ends vow by the signal, as if the signal had never been caught. */
_Noreturn void signals_die(int number);

#endif
