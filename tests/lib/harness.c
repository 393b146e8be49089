/* SPDX-License-Identifier: MIT */
/* harness.c - selects tests, runs each in its own process, tells in TAP 13.
 *
 * HOW   The parent has one slot per job. A slot's child leads a process group
 *       and writes to a pipe, of which the slot keeps the end. The parent
 *       sleeps in ppoll(), where alone SIGCHLD is let in, so no exit is missed.
 *       A child is first seen as a zombie, then its group is killed, then it is
 *       reaped: until then no stranger can get its number.
 * EXIT  0 all passed, 1 some failed, 77 all were skipped, 2 bad usage.
 */
#define _GNU_SOURCE 1
#include "harness.h"
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <getopt.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    TIMEOUT_S = 180, /* for a test that hangs; none is judged by its speed */
    EXIT_USAGE = 2,
    EXIT_SKIPPED = 77,
    JOBS_MAX = 64,
    PATTERNS_MAX = 512,
    OUT_KEEP = 64 * 1024, /* the last bytes of output that are shown at least */
    OUT_MAX = 2 * OUT_KEEP,
    TOLD_MS = 500 /* what --times leaves out took less */
};

enum verdict { PASSED, FAILED, SKIPPED };

enum by {
    BY_FILTER = 'f',
    BY_NAME = 'e',
    BY_FILE = 'F',
    BY_SKIP = 'x',
    BY_FIRST = '1'
};

struct pattern {
    const char *text;
    enum by by;
    bool used; /* a pattern that selects nothing is a mistake */
};

struct slot {
    const struct test *test; /* NULL: free */
    pid_t pid;               /* also its process group */
    int out;                 /* our end of its output, -1 after its end */
    int timeout_s;
    int64_t began_ms;
    int64_t deadline_ms;
    bool timed_out;
    size_t left_out; /* bytes dropped before `text` */
    size_t len;
    char text[OUT_MAX];
};

static struct test *first_test, **last_link = &first_test;
static size_t n_registered;

static struct {
    uint64_t seed;
    uint64_t jobs;
    uint64_t slow;                    /* factor on every time limit */
    int list, hidden, no_fork, times; /* flags of getopt_long() */
    bool no_skip;
    struct pattern patterns[PATTERNS_MAX];
    size_t n_patterns;
    size_t n_wanted; /* the patterns that select; without any, all tests */
    const struct test **tests; /* the selected ones */
    size_t n_tests;
    size_t count[3]; /* by verdict */
    pid_t pid;       /* the process that runs `inside` */
    const struct test *inside;
    sigset_t mask; /* of the tests, and of ppoll(): lets SIGCHLD in */
} run = {.jobs = 1, .slow = 1};

static const char SKIP_MARK[] = "\nskipped: "; /* then the reason, a newline */

/* ---- telling ------------------------------------------------------------ */

static size_t done(void)
{
    return run.count[PASSED] + run.count[FAILED] + run.count[SKIPPED];
}

static void report(const struct test *t, enum verdict v, const char *why)
{
    static const char *const before[] = {" # ", "", " # SKIP "};
    const char *note = v == FAILED ? "" : why;
    run.count[v]++;
    printf("%s %zu - %s%s%s\n", v == FAILED ? "not ok" : "ok", done(), t->name,
           note[0] == '\0' ? "" : before[v], note);
    if (v == FAILED)
        printf("# %s; again: %s--exact %s --seed %llu\n", why,
               t->opts.hidden ? "--hidden " : "", t->name,
               (unsigned long long)run.seed);
}

static void show_output(const struct slot *s)
{
    bool fresh = true; /* at the start of a line */
    if (s->left_out > 0)
        printf("# (%zu bytes of output before this are left out)\n",
               s->left_out);
    for (size_t i = 0; i < s->len; i++) {
        if (fresh)
            fputs("# ", stdout);
        putchar(s->text[i]);
        fresh = s->text[i] == '\n';
    }
    if (!fresh)
        putchar('\n');
}

static int summarize(void)
{
    printf("%zu passed, %zu failed", run.count[PASSED], run.count[FAILED]);
    if (run.count[SKIPPED] > 0)
        printf(", %zu skipped", run.count[SKIPPED]);
    printf("\n");
    fflush(stdout);
    if (run.count[FAILED] > 0)
        return 1;
    return run.count[PASSED] == 0 ? EXIT_SKIPPED : 0;
}

/* ---- inside a test ------------------------------------------------------ */

void test_register(struct test *t)
{
    *last_link = t;
    last_link = &t->next;
    n_registered++;
}

uint64_t test_seed(void)
{
    return run.seed;
}

uint64_t test_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* With --no-fork nothing can go on behind a test that ends early: what was not
 * run must not look as if it had passed. */
static _Noreturn void leave(enum verdict v, const char *why)
{
    if (!run.no_fork || getpid() != run.pid)
        _exit(v == SKIPPED ? EXIT_SKIPPED : 1);
    report(run.inside, v, why);
    const size_t left = run.n_tests - done();
    if (left > 0)
        printf("# %zu tests were not run: --no-fork ends here\n", left);
    const int code = summarize();
    _exit(left > 0 ? 1 : code);
}

/* One write: it is short enough to stay whole between those of others. */
static void say(const char *text)
{
    ssize_t n = write(STDERR_FILENO, text, strlen(text));
    (void)n;
}

void test_skip(const char *reason)
{
    char text[512];
    snprintf(text, sizeof(text), "%s%.400s\n", SKIP_MARK, reason);
    say(text);
    leave(run.no_fork && run.no_skip ? FAILED : SKIPPED, reason);
}

void test_fail(const char *site, const char *format, ...)
{
    char what[1600], text[2048]; /* there may be little stack here */
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    snprintf(text, sizeof(text), "%.300s: %s (seed %llu)\n", site, what,
             (unsigned long long)run.seed);
    say(text);
    leave(FAILED, "a check failed");
}

void test_str_eq(const char *site, const char *what, const char *got,
                 const char *want)
{
    if (got == NULL || want == NULL ? got != want : strcmp(got, want) != 0)
        test_fail(site, "%s, got \"%.500s\", want \"%.500s\"", what,
                  got == NULL ? "(NULL)" : got, want == NULL ? "(NULL)" : want);
}

void test_mem_eq(const char *site, const char *what, const void *got,
                 const void *want, size_t size)
{
    const unsigned char *g = got, *w = want;
    for (size_t i = 0; i < size; i++)
        if (g[i] != w[i])
            test_fail(site, "%s, byte %zu of %zu, got 0x%02x, want 0x%02x",
                      what, i, size, g[i], w[i]);
}

/* A library that calls exit(0) must not make its test pass. */
static void refuse_exit(void)
{
    if (run.inside != NULL && getpid() == run.pid)
        test_fail(run.inside->name, "exit() was called inside the test");
}

static void run_inside(const struct test *t)
{
    run.pid = getpid();
    run.inside = t;
    t->fn();
    run.inside = NULL;
}

/* Gives the test a network of its own, with a loopback only: a port that one
 * test has closed is not opened by another one meanwhile. Without the right to
 * do so (root has it), tests share the network of the machine. */
static void enter_own_network(void)
{
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    if (unshare(CLONE_NEWNET) < 0)
        return;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &lo) < 0)
        test_fail(TEST_HERE, "no loopback: %s", strerror(errno));
    close(fd);
}

static _Noreturn void run_child(const struct test *t, int out)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the terminal's ^C ends the parent */
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_SETMASK, &run.mask, NULL);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    enter_own_network();
    run_inside(t);
    exit(0); /* not _exit(): leak checkers and coverage do their work here */
}

/* ---- the parent --------------------------------------------------------- */

static _Noreturn void give_up(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1); /* the children die with us */
}

static int64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void start(struct slot *s, const struct test *t)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        give_up("pipe2");
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        give_up("fork");
    if (pid == 0)
        run_child(t, ends[1]);
    setpgid(pid, pid); /* here too: the group must exist before we kill it */
    close(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    s->test = t;
    s->pid = pid;
    s->out = ends[0];
    s->timeout_s = t->opts.timeout_s == 0 ? TIMEOUT_S : t->opts.timeout_s;
    s->timeout_s *= (int)run.slow;
    s->began_ms = now_ms();
    s->deadline_ms = s->began_ms + (int64_t)s->timeout_s * 1000;
    s->timed_out = false;
    s->len = s->left_out = 0;
}

/* Take what the child wrote, once; false when there is no more. */
static bool drain(struct slot *s)
{
    if (s->out < 0)
        return false;
    if (s->len == OUT_MAX) {
        memmove(s->text, s->text + OUT_KEEP, OUT_KEEP);
        s->len = OUT_KEEP;
        s->left_out += OUT_KEEP;
    }
    ssize_t n = read(s->out, s->text + s->len, OUT_MAX - s->len);
    if (n > 0) {
        s->len += (size_t)n;
        return true;
    }
    if (n == 0) { /* else poll() would wake us for it again and again */
        close(s->out);
        s->out = -1;
    }
    return false;
}

static void kill_group(const struct slot *s)
{
    kill(-s->pid, SIGKILL);
    kill(s->pid, SIGKILL); /* it may have left its group */
}

static bool has_ended(const struct slot *s)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)s->pid, &info, WEXITED | WNOHANG | WNOWAIT) ==
               0 &&
           info.si_pid == s->pid;
}

static bool wrote(const struct slot *s, const char *text)
{
    return memmem(s->text, s->len, text, strlen(text)) != NULL;
}

/* The signal that ended the child, 0 if none. Sanitizers catch it, tell about
 * it and exit. */
static int signal_of(const struct slot *s, int status)
{
    if (WIFSIGNALED(status))
        return WTERMSIG(status);
    if ((TEST_ASAN || TEST_TSAN) && WEXITSTATUS(status) != 0 &&
        (wrote(s, "Sanitizer: stack-overflow") || wrote(s, "Sanitizer: SEGV")))
        return s->test->opts.expect_signal;
    return 0;
}

/* The reason, when the last line that the child wrote is a skip's. */
static bool skip_reason(const struct slot *s, char *why, size_t size)
{
    const size_t mark = sizeof(SKIP_MARK) - 1;
    const char *end = s->len < 2 ? NULL : memrchr(s->text, '\n', s->len - 1);
    const size_t rest = end == NULL ? 0 : s->len - (size_t)(end - s->text);
    if (rest <= mark || memcmp(end, SKIP_MARK, mark) != 0)
        return false;
    snprintf(why, size, "%.*s", (int)(rest - mark - 1), end + mark);
    return true;
}

static enum verdict judge(const struct slot *s, int status, char *why,
                          size_t size)
{
    const int want = s->test->opts.expect_signal;
    const int got = signal_of(s, status);
    if (s->timed_out)
        snprintf(why, size, "timed out after %d s", s->timeout_s);
    else if (got != 0 && got == want)
        return PASSED;
    else if (got != 0)
        snprintf(why, size, "died by signal %d (%s)", got, strsignal(got));
    else if (WEXITSTATUS(status) == EXIT_SKIPPED && skip_reason(s, why, size))
        return run.no_skip ? FAILED : SKIPPED;
    else if (WEXITSTATUS(status) != 0)
        snprintf(why, size, "exit code %d", WEXITSTATUS(status));
    else if (want != 0)
        snprintf(why, size, "came to its end, want signal %d (%s)", want,
                 strsignal(want));
    else
        return PASSED;
    return FAILED;
}

/* Elapsed time and processor time of a slow test: where a run's time goes. */
static void note_time(const struct slot *s, const struct rusage *used,
                      char *note, size_t size)
{
    const int64_t ms = now_ms() - s->began_ms;
    const double cpu_s =
        (double)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) +
        (double)(used->ru_utime.tv_usec + used->ru_stime.tv_usec) / 1e6;
    note[0] = '\0';
    if (run.times && ms >= TOLD_MS)
        snprintf(note, size, "%.1f s, cpu %.1f s", (double)ms / 1000, cpu_s);
}

static void finish(struct slot *s)
{
    char why[512];
    struct rusage used;
    int status = 0;
    kill_group(s);
    for (int i = 0; i < 64 && drain(s); i++) {
        /* bounded: something that escaped might write for ever */
    }
    if (s->out >= 0)
        close(s->out);
    if (wait4(s->pid, &status, 0, &used) < 0)
        give_up("wait4");
    enum verdict v = judge(s, status, why, sizeof(why));
    if (v == PASSED)
        note_time(s, &used, why, sizeof(why));
    report(s->test, v, why);
    if (v == FAILED)
        show_output(s);
    s->test = NULL;
}

static void on_child(int sig)
{
    (void)sig; /* it interrupts ppoll() */
}

/* Until a child writes or ends, or the next time limit. */
static void wait_for_news(struct slot *slots, size_t n)
{
    struct pollfd fds[JOBS_MAX];
    int64_t wait_ms = 3600 * 1000, now = now_ms();
    for (size_t i = 0; i < n; i++) {
        const struct slot *s = &slots[i];
        fds[i] = (struct pollfd){.fd = s->test == NULL ? -1 : s->out,
                                 .events = POLLIN};
        if (s->test != NULL && !s->timed_out && s->deadline_ms - now < wait_ms)
            wait_ms = s->deadline_ms < now ? 0 : s->deadline_ms - now;
    }
    struct timespec ts = {wait_ms / 1000, wait_ms % 1000 * 1000000};
    if (ppoll(fds, (nfds_t)n, &ts, &run.mask) < 0 && errno != EINTR)
        give_up("ppoll");
}

static void serve(struct slot *s)
{
    drain(s);
    if (!s->timed_out && now_ms() >= s->deadline_ms && !has_ended(s)) {
        s->timed_out = true;
        kill_group(s);
    }
    if (has_ended(s))
        finish(s);
}

static void run_forked(void)
{
    const size_t n = (size_t)run.jobs;
    size_t next = 0;
    struct slot *slots = calloc(n, sizeof(*slots));
    if (slots == NULL)
        give_up("calloc");
    sigaction(SIGCHLD, &(struct sigaction){.sa_handler = on_child}, NULL);
    sigset_t block;
    sigemptyset(&block);
    sigaddset(&block, SIGCHLD);
    sigprocmask(SIG_BLOCK, &block, &run.mask);
    sigdelset(&run.mask, SIGCHLD);
    while (done() < run.n_tests) {
        for (size_t i = 0; i < n && next < run.n_tests; i++)
            if (slots[i].test == NULL)
                start(&slots[i], run.tests[next++]);
        wait_for_news(slots, n);
        for (size_t i = 0; i < n; i++)
            if (slots[i].test != NULL)
                serve(&slots[i]);
    }
    free(slots);
}

static void run_here(void)
{
    for (size_t i = 0; i < run.n_tests; i++) {
        run_inside(run.tests[i]);
        report(run.tests[i], PASSED, "");
    }
}

/* ---- options ------------------------------------------------------------ */

static const char HELP[] =
    "Runs the tests, each in a process of its own.\n"
    "  --list            print the names, one per line, and run nothing\n"
    "  --filter PATTERN  only names with this text, or matching this glob\n"
    "  --exact NAME      only this one\n"
    "  --file PATH       only those of this source file, such as\n"
    "                    tests/unit/gate_test.c\n"
    "  --skip PATTERN    none of those; all of these may be repeated\n"
    "  --first PATTERN   start these before all others; may be repeated\n"
    "  --seed N          the seed that a failure told, to see it again\n"
    "  --jobs N          so many at a time (1)\n"
    "  --no-fork         in this process, for a debugger: the first that\n"
    "                    fails or skips ends the run, no time limits\n"
    "  --times           show the time of tests above half a second\n"
    "  --hidden          also those that test the harness by failing\n"
    "  --help            this text\n"
    "Environment: VOW_TEST_SEED=N as --seed, VOW_TEST_SLOW=N multiplies the\n"
    "time limits,\n"
    "VOW_TEST_NO_SKIP=1 makes a skip a failure, VOW_TEST_UNPOOLED=1 gives\n"
    "every object a block of its own.\n"
    "Exit code: 0 all passed, 1 some failed, 77 all skipped, 2 bad usage.\n";

static _Noreturn void bad_usage(const char *what, const char *arg)
{
    fprintf(stderr, "%s '%s'; --help tells more.\n", what, arg);
    exit(EXIT_USAGE);
}

static uint64_t number(const char *what, const char *text, uint64_t max)
{
    char *end = NULL;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 ||
        n == 0 || n > max)
        bad_usage(what, text);
    return n;
}

static void take_option(int c, const char *arg)
{
    if (c == BY_FILTER || c == BY_NAME || c == BY_FILE || c == BY_SKIP ||
        c == BY_FIRST) {
        if (run.n_patterns == PATTERNS_MAX)
            bad_usage("Too many patterns at", arg);
        run.patterns[run.n_patterns++] =
            (struct pattern){.text = arg, .by = (enum by)c};
        run.n_wanted += c != BY_SKIP && c != BY_FIRST;
    } else if (c == 's') {
        run.seed = number("A seed is from 1 to 2^64-1, not", arg, UINT64_MAX);
    } else if (c == 'j') {
        run.jobs = number("Jobs are from 1 to 64, not", arg, JOBS_MAX);
    } else if (c == 'h') {
        fputs(HELP, stdout);
        exit(0);
    }
}

static void parse_args(int argc, char **argv)
{
    static const struct option options[] = {
        {"list", no_argument, &run.list, 1},
        {"filter", required_argument, NULL, BY_FILTER},
        {"exact", required_argument, NULL, BY_NAME},
        {"file", required_argument, NULL, BY_FILE},
        {"skip", required_argument, NULL, BY_SKIP},
        {"first", required_argument, NULL, BY_FIRST},
        {"seed", required_argument, NULL, 's'},
        {"jobs", required_argument, NULL, 'j'},
        {"no-fork", no_argument, &run.no_fork, 1},
        {"hidden", no_argument, &run.hidden, 1},
        {"times", no_argument, &run.times, 1},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    int c;
    while ((c = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        if (c == ':')
            bad_usage("An argument is missing after", argv[optind - 1]);
        if (c == '?')
            bad_usage("Unknown option", argv[optind - 1]);
        take_option(c, optarg);
    }
    if (optind < argc)
        bad_usage("Unexpected argument", argv[optind]);
}

static void read_environment(void)
{
    const char *slow = getenv("VOW_TEST_SLOW");
    if (slow != NULL && slow[0] != '\0')
        run.slow = number("VOW_TEST_SLOW is from 1 to 1000, not", slow, 1000);
    const char *no_skip = getenv("VOW_TEST_NO_SKIP");
    run.no_skip = no_skip != NULL && strcmp(no_skip, "") != 0 &&
                  strcmp(no_skip, "0") != 0;
    const char *seed = getenv("VOW_TEST_SEED");
    if (run.seed == 0 && seed != NULL && seed[0] != '\0')
        run.seed =
            number("VOW_TEST_SEED is from 1 to 2^64-1, not", seed, UINT64_MAX);
    if (run.seed == 0) { /* 32 bits are enough, and easier to type again */
        uint64_t state = (uint64_t)now_ms() << 22 ^ (uint64_t)getpid();
        run.seed = (test_random(&state) & UINT32_MAX) | 1;
    }
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static bool fits(struct pattern *p, const struct test *t)
{
    bool yes;
    if (p->by == BY_NAME)
        yes = strcmp(t->name, p->text) == 0;
    else if (p->by == BY_FILE)
        yes = ends_with(t->file, p->text);
    else
        yes = strstr(t->name, p->text) != NULL ||
              fnmatch(p->text, t->name, 0) == 0;
    p->used = p->used || yes;
    return yes;
}

static bool is_selected(const struct test *t)
{
    bool wanted = run.n_wanted == 0, skipped = false;
    for (size_t i = 0; i < run.n_patterns; i++) {
        struct pattern *p = &run.patterns[i];
        if (p->by == BY_SKIP)
            skipped = fits(p, t) || skipped;
        else if (p->by != BY_FIRST)
            wanted = fits(p, t) || wanted;
    }
    return wanted && !skipped;
}

static bool is_first(const struct test *t)
{
    for (size_t i = 0; i < run.n_patterns; i++)
        if (run.patterns[i].by == BY_FIRST && fits(&run.patterns[i], t))
            return true;
    return false;
}

/* Tests of --first, then the others, each as they stand in the files: link-time
 * optimisation may register backwards. */
static int by_place(const void *a, const void *b)
{
    const struct test *const *x = a, *const *y = b;
    int order = is_first(*y) - is_first(*x);
    if (order == 0)
        order = strcmp((*x)->file, (*y)->file);
    return order != 0 ? order : (*x)->line - (*y)->line;
}

static void select_tests(void)
{
    run.tests = calloc(n_registered + 1, sizeof(*run.tests));
    if (run.tests == NULL)
        give_up("calloc");
    for (const struct test *t = first_test; t != NULL; t = t->next) {
        if (t->opts.hidden && !run.hidden)
            continue;
        if (is_selected(t))
            run.tests[run.n_tests++] = t;
    }
    qsort(run.tests, run.n_tests, sizeof(*run.tests), by_place);
    for (size_t i = 0; i < run.n_patterns; i++)
        if (!run.patterns[i].used && run.patterns[i].by != BY_FIRST)
            bad_usage("No test matches", run.patterns[i].text);
    if (run.n_tests == 0)
        bad_usage("There are no tests in", program_invocation_name);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    parse_args(argc, argv);
    read_environment();
    select_tests();
    if (run.list) {
        for (size_t i = 0; i < run.n_tests; i++)
            printf("%s\n", run.tests[i]->name);
        return 0;
    }
    printf("TAP version 13\n1..%zu\n", run.n_tests);
    atexit(refuse_exit);
    if (run.no_fork)
        run_here();
    else
        run_forked();
    return summarize();
}
