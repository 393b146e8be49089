/* SPDX-License-Identifier: MIT */
/* units_kinds.c - reads lists of words behind options: when to retry, how to
 * kill, when to stop; and the names of signals.
 *
 * HOW   A list is read item by item into a copy of the value. The copy is
 *       returned only when the whole list is valid.
 */
#include "units.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { ITEM_ROOM = 32, MOST_SIGNAL = 64 };

static const struct {
    const char *name;
    int number;
} signals[] = {{"HUP", SIGHUP},       {"INT", SIGINT},       {"QUIT", SIGQUIT},
               {"ILL", SIGILL},       {"TRAP", SIGTRAP},     {"ABRT", SIGABRT},
               {"BUS", SIGBUS},       {"FPE", SIGFPE},       {"KILL", SIGKILL},
               {"USR1", SIGUSR1},     {"SEGV", SIGSEGV},     {"USR2", SIGUSR2},
               {"PIPE", SIGPIPE},     {"ALRM", SIGALRM},     {"TERM", SIGTERM},
               {"STKFLT", SIGSTKFLT}, {"CHLD", SIGCHLD},     {"CONT", SIGCONT},
               {"STOP", SIGSTOP},     {"TSTP", SIGTSTP},     {"TTIN", SIGTTIN},
               {"TTOU", SIGTTOU},     {"URG", SIGURG},       {"XCPU", SIGXCPU},
               {"XFSZ", SIGXFSZ},     {"VTALRM", SIGVTALRM}, {"PROF", SIGPROF},
               {"WINCH", SIGWINCH},   {"IO", SIGIO},         {"PWR", SIGPWR},
               {"SYS", SIGSYS}};

enum { SIGNALS = sizeof(signals) / sizeof(signals[0]) };

static const char retry_on_shape[] =
    "a list of exit codes, signal, timeout or any is needed: 1,3-9,signal";
static const char kill_seq_shape[] =
    "signals with waits between them are needed: TERM,5s,KILL";

static bool list_read_item(const char **s, char *into);
static const char *retry_on_add_item(const char *item, struct retry_on *on);
static const char *kill_seq_add_item(const char *item, struct kill_seq *seq);
static bool is_digits(const char *s);
static int signal_number(const char *name);

const char *units_retry_on(const char *s, struct retry_on *ret_on)
{
    struct retry_on on = {.signal = false};
    char item[ITEM_ROOM];
    while (s != NULL) {
        const char *wrong = retry_on_shape;
        if (list_read_item(&s, item))
            wrong = retry_on_add_item(item, &on);
        if (wrong != NULL)
            return wrong;
    }
    *ret_on = on;
    return NULL;
}

static const char *retry_on_add_item(const char *item, struct retry_on *on)
{
    char first[ITEM_ROOM];
    uint64_t low = 1;
    uint64_t high = 255;
    bool any = strcmp(item, "any") == 0;
    bool by_signal = strcmp(item, "signal") == 0;
    bool by_timeout = strcmp(item, "timeout") == 0;
    on->signal = on->signal || any || by_signal;
    on->timeout = on->timeout || any || by_timeout;
    if (by_signal || by_timeout)
        return NULL;
    if (!any) {
        const char *dash = strchr(item, '-');
        size_t n = dash != NULL ? (size_t)(dash - item) : strlen(item);
        memcpy(first, item, n);
        first[n] = '\0';
        if (units_count(first, &low) != NULL ||
            units_count(dash != NULL ? dash + 1 : first, &high) != NULL)
            return retry_on_shape;
    }
    if (low < 1 || high > 255)
        return "exit codes of failures go from 1 to 255";
    if (low > high)
        return "a span of exit codes begins with the smaller: 3-9";
    for (; low <= high; low++)
        on->codes[low / 64] |= UINT64_C(1) << low % 64;
    return NULL;
}

const char *units_kill_seq(const char *s, struct kill_seq *ret_seq)
{
    struct kill_seq seq = {.n = 0};
    char item[ITEM_ROOM];
    while (s != NULL) {
        const char *wrong = kill_seq_shape;
        if (list_read_item(&s, item))
            wrong = kill_seq_add_item(item, &seq);
        if (wrong != NULL)
            return wrong;
    }
    *ret_seq = seq;
    return NULL;
}

/* Reads a step. A number directly behind a signal is refused: in TERM,5,KILL
 * the user means five seconds, but 5 would be a signal. */
static const char *kill_seq_add_item(const char *item, struct kill_seq *seq)
{
    struct kill_step *last = seq->n > 0 ? &seq->steps[seq->n - 1] : NULL;
    bool may_wait = last != NULL && last->signal != 0 && last->wait_ms == 0;
    struct kill_step step = {.signal = 0};
    bool number = is_digits(item);
    if (number && may_wait)
        return "a wait needs a unit, and a signal directly behind another "
               "signal must be a name: TERM,5s,KILL";
    if (!number && strchr("0123456789.", item[0]) != NULL) {
        const char *wrong = units_duration(item, &step.wait_ms);
        if (wrong != NULL)
            return wrong;
        if (may_wait) {
            last->wait_ms = step.wait_ms;
            return NULL;
        }
    } else {
        step.signal = signal_number(item);
        if (step.signal == 0)
            return "there is no such signal: use a name or a number, as TERM, "
                   "SIGINT or 9";
    }
    if (seq->n == KILL_STEPS)
        return "these are too many steps: 8 are the most";
    seq->steps[seq->n++] = step;
    return NULL;
}

static bool is_digits(const char *s)
{
    return s[0] != '\0' && s[strspn(s, "0123456789")] == '\0';
}

/* Returns the number of a signal; 0: no such signal. */
static int signal_number(const char *name)
{
    uint64_t number;
    if (units_count(name, &number) == NULL)
        return number <= MOST_SIGNAL ? (int)number : 0;
    if (strncasecmp(name, "SIG", 3) == 0)
        name += 3;
    for (size_t i = 0; i < SIGNALS; i++)
        if (strcasecmp(signals[i].name, name) == 0)
            return signals[i].number;
    return 0;
}

const char *units_signal_name(int number, char *into)
{
    for (size_t i = 0; i < SIGNALS; i++)
        if (signals[i].number == number)
            return signals[i].name;
    snprintf(into, 32, "%d", number);
    return into;
}

const char *units_halt(const char *s, struct halt *ret_halt)
{
    static const char shape[] =
        "now or soon and what to count is needed: now,fail=1, soon,done=10%, "
        "now,success=1; or never";
    static const char *const names[] = {"fail=", "success=", "done="};
    struct halt halt = {.when = HALT_NEVER};
    char number[ITEM_ROOM];
    if (strcmp(s, "never") == 0) {
        *ret_halt = halt;
        return NULL;
    }
    if (strncmp(s, "now,", 4) == 0)
        halt.when = HALT_NOW;
    else if (strncmp(s, "soon,", 5) == 0)
        halt.when = HALT_SOON;
    else
        return shape;
    s = strchr(s, ',') + 1;
    size_t what = 0;
    while (what < 3 && strncmp(s, names[what], strlen(names[what])) != 0)
        what++;
    if (what == 3)
        return shape;
    halt.what = (enum halt_what)what;
    s = strchr(s, '=') + 1;
    size_t n = strlen(s);
    halt.percent = n > 0 && s[n - 1] == '%';
    n -= halt.percent ? 1 : 0;
    if (n >= sizeof(number))
        return shape;
    memcpy(number, s, n);
    number[n] = '\0';
    if (units_count(number, &halt.n) != NULL)
        return shape;
    if (halt.n == 0 || (halt.percent && halt.n > 100))
        return halt.percent ? "a share to stop at goes from 1% to 100%"
                            : "a number to stop at is at least 1: now,fail=1";
    *ret_halt = halt;
    return NULL;
}

/* Copies the text up to the next comma; *s is then behind the comma, or NULL at
 * the end. Returns false if the text is empty or too long for any item. */
static bool list_read_item(const char **s, char *into)
{
    size_t n = strcspn(*s, ",");
    if (n == 0 || n >= ITEM_ROOM)
        return false;
    memcpy(into, *s, n);
    into[n] = '\0';
    *s = (*s)[n] == ',' ? *s + n + 1 : NULL;
    return true;
}
