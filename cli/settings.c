/* SPDX-License-Identifier: MIT */
/* settings.c - the option tables of `map` and `run`, and reading the options.
 *
 * HOW   `run` has the options of `map` that make sense for a single command.
 *       Both tables use the same ids, so the same switch reads both.
 */
#include "settings.h"
#include "cmd.h"
#include "say.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum id {
    ID_END,
    ID_FILE,
    ID_NUL,
    ID_DELIMITER,
    ID_COLUMNS,
    ID_HEADER,
    ID_PER_JOB,
    ID_REPLACE,
    ID_SHELL,
    ID_EXEC,
    ID_TTY,
    ID_JOBS,
    ID_RATE,
    ID_EVEN,
    ID_WEIGHT,
    ID_DELAY,
    ID_LOAD,
    ID_MEMFREE,
    ID_QUEUE,
    ID_POOL,
    ID_RETRIES,
    ID_BACKOFF,
    ID_RETRY_ON,
    ID_TIMEOUT,
    ID_DEADLINE,
    ID_STOP_AFTER,
    ID_KILL_SEQ,
    ID_FIRST_ERROR,
    ID_HALT,
    ID_EXIT,
    ID_OUTPUT,
    ID_KEEP_ORDER,
    ID_TAG,
    ID_RESULTS,
    ID_JSON,
    ID_LOG,
    ID_JOBLOG,
    ID_RESUME,
    ID_RESUME_FAILED,
    ID_DRY_RUN,
    ID_BAR,
    ID_ETA,
    ID_PROGRESS,
    ID_COLOR,
    ID_VERBOSE
};

static const struct option_def map_options[] = {
    {ID_FILE, 'a', "arg-file", "FILE", "items are the lines of FILE", "Input",
     "FILE"},
    {ID_NUL, '0', "null", NULL, "items end with a NUL byte", NULL, NULL},
    {ID_DELIMITER, 'd', "delimiter", "X",
     "items end with X: one byte, or \\n \\t \\0 \\xHH", NULL, NULL},
    {ID_COLUMNS, 'C', "colsep", "SEP", "split items into {1}, {2}, ... at SEP",
     NULL, NULL},
    {ID_HEADER, '\0', "header", "[:]",
     "the first line names the columns: {name}", NULL, ":"},
    {ID_PER_JOB, 'n', "max-args", "N", "items per job (default 1)", NULL, NULL},
    {ID_REPLACE, 'I', "replace", "R", "use R instead of {}", "Command", NULL},
    {ID_SHELL, '\0', "shell", "PATH",
     "the shell for the shell form (default sh)", NULL, "FILE"},
    {ID_EXEC, '\0', "exec", NULL, "never use a shell", NULL, NULL},
    {ID_TTY, '\0', "tty", NULL, "one job at a time, with the terminal", NULL,
     NULL},
    {ID_TTY, 'o', "open-tty", NULL, NULL, NULL, NULL},
    {ID_JOBS, 'j', "jobs", "N|N%|Nx",
     "concurrency limit (default: one job per processor)", "Limits", NULL},
    {ID_JOBS, 'P', "max-procs", "N", NULL, NULL, NULL},
    {ID_RATE, '\0', "rate", "N/U",
     "rate limit of starts: 50/s, 100/m, 10/500ms", NULL, NULL},
    {ID_EVEN, '\0', "even", NULL, "space the starts of --rate evenly", NULL,
     NULL},
    {ID_WEIGHT, '\0', "weight", "N|{N}",
     "how much a job counts in -j and --rate (default 1)", NULL, NULL},
    {ID_DELAY, '\0', "delay", "D", "at least D between two starts", NULL, NULL},
    {ID_LOAD, '\0', "load", "N", "start nothing while the load is above N",
     NULL, NULL},
    {ID_MEMFREE, '\0', "memfree", "SIZE",
     "start nothing while less memory is free", NULL, NULL},
    {ID_QUEUE, '\0', "queue", "N",
     "items to read ahead (default: twice the jobs)", NULL, NULL},
    {ID_POOL, '\0', "pool", "NAME[:KEY]",
     "apply -j and --rate to a pool that processes share", NULL, NULL},
    {ID_RETRIES, '\0', "retries", "N", "attempts after the first (default 0)",
     "Retries and timeouts", NULL},
    {ID_RETRIES, '\0', "retry", "N", NULL, NULL, NULL},
    {ID_BACKOFF, '\0', "backoff", "D..D",
     "wait before a retry, growing (default 100ms..10s)", NULL, NULL},
    {ID_RETRY_ON, '\0', "retry-on", "CODES",
     "retry only after these: 1,3-9,signal,timeout,any", NULL,
     "signal timeout any"},
    {ID_TIMEOUT, '\0', "timeout", "D", "kill an attempt after D", NULL, NULL},
    {ID_DEADLINE, '\0', "deadline", "D", "kill a job after D, waits included",
     NULL, NULL},
    {ID_STOP_AFTER, '\0', "stop-after", "D", "end the run after D", NULL, NULL},
    {ID_KILL_SEQ, '\0', "kill-seq", "SEQ",
     "signals to kill a job with (default TERM,5s,KILL)", NULL, NULL},
    {ID_FIRST_ERROR, 'e', "fail-fast", NULL,
     "stop at the first failure: --halt now,fail=1", "Failures", NULL},
    {ID_HALT, '\0', "halt", "WHEN,WHY=N",
     "stop the run: now|soon, fail|success|done=N|N%", NULL,
     "now,fail=1 soon,fail=1 now,success=1 soon,success=1 never"},
    {ID_EXIT, '\0', "exit", "STYLE",
     "exit codes: vow (default), count or xargs", NULL, "vow count xargs"},
    {ID_OUTPUT, '\0', "output", "HOW",
     "output mode: group (default), line, live or none", "Output",
     "group line live none"},
    {ID_KEEP_ORDER, 'k', "keep-order", NULL, "output in the order of the input",
     NULL, NULL},
    {ID_TAG, '\0', "tag", NULL, "print the item and a tab before each line",
     NULL, NULL},
    {ID_RESULTS, '\0', "results", "DIR", "keep what each job wrote in DIR",
     NULL, "DIR"},
    {ID_JSON, '\0', "json", NULL, "one line of JSON per job, with its output",
     NULL, NULL},
    {ID_LOG, '\0', "log", "FILE", "append one line of JSON per job", "State",
     "FILE"},
    {ID_JOBLOG, '\0', "joblog", "FILE",
     "the same in the columns of GNU parallel", NULL, "FILE"},
    {ID_RESUME, '\0', "resume", NULL, "skip jobs that are in the log", NULL,
     NULL},
    {ID_RESUME_FAILED, '\0', "resume-failed", NULL,
     "skip jobs that succeeded, run failed jobs again", NULL, NULL},
    {ID_DRY_RUN, '\0', "dry-run", NULL, "print the commands, run nothing", NULL,
     NULL},
    {ID_BAR, '\0', "bar", NULL, "show a progress bar", "Show", NULL},
    {ID_ETA, '\0', "eta", NULL, "show a progress bar with the time left", NULL,
     NULL},
    {ID_PROGRESS, '\0', "progress", "[HOW]",
     "progress display: auto, bar, plain or none", NULL, "auto bar plain none"},
    {ID_COLOR, '\0', "color", "WHEN", "colors: auto, always or never", NULL,
     "auto always never"},
    {ID_VERBOSE, 'v', "verbose", NULL, "print each command and a summary", NULL,
     NULL},
    STORE_ROW,
    LEASE_ROWS,
    {.id = ID_END}};

static const struct option_def run_options[] = {
    {ID_RATE, '\0', "rate", "N/U", "rate limit: 50/s, 100/m, 10/500ms",
     "Limits", NULL},
    {ID_EVEN, '\0', "even", NULL, "space the starts of --rate evenly", NULL,
     NULL},
    {ID_DELAY, '\0', "delay", "D", "at least D between two attempts", NULL,
     NULL},
    {ID_LOAD, '\0', "load", "N", "wait while the load is above N", NULL, NULL},
    {ID_MEMFREE, '\0', "memfree", "SIZE", "wait while less memory is free",
     NULL, NULL},
    {ID_POOL, '\0', "pool", "NAME[:KEY]",
     "apply -j and --rate to a pool that processes share", NULL, NULL},
    {ID_JOBS, 'j', "jobs", "N|N%|Nx", "concurrency limit of the --pool", NULL,
     NULL},
    {ID_RETRIES, '\0', "retries", "N", "attempts after the first (default 0)",
     "Retries and timeouts", NULL},
    {ID_RETRIES, '\0', "retry", "N", NULL, NULL, NULL},
    {ID_BACKOFF, '\0', "backoff", "D..D",
     "wait before a retry, growing (default 100ms..10s)", NULL, NULL},
    {ID_RETRY_ON, '\0', "retry-on", "CODES",
     "retry only after these: 1,3-9,signal,timeout,any", NULL,
     "signal timeout any"},
    {ID_TIMEOUT, '\0', "timeout", "D", "kill an attempt after D", NULL, NULL},
    {ID_DEADLINE, '\0', "deadline", "D",
     "kill the command after D, waits included", NULL, NULL},
    {ID_KILL_SEQ, '\0', "kill-seq", "SEQ",
     "signals to kill it with (default TERM,5s,KILL)", NULL, NULL},
    {ID_LOG, '\0', "log", "FILE", "append one line of JSON", "State", "FILE"},
    {ID_JOBLOG, '\0', "joblog", "FILE",
     "the same in the columns of GNU parallel", NULL, "FILE"},
    {ID_VERBOSE, 'v', "verbose", NULL, "print each attempt", "Show", NULL},
    STORE_ROW,
    LEASE_ROWS,
    {.id = ID_END}};

const struct verb_def map_verb = {
    .name = "map",
    .usage = "[OPTION...] COMMAND [ARG...] [::: ITEM... | :::: FILE...]",
    .about = "run a command once per item, under limits",
    .story =
        "Items are the words after :::, the lines of the files after ::::, or\n"
        "the lines of stdin. In COMMAND, {} is the item, {.} without its\n"
        "extension, {/} its base name, {//} its folder, {/.} both, {#} the\n"
        "number of the job, {%} its slot, {1} a column; without any, the item\n"
        "is the last argument. A COMMAND that is one word with blanks is a\n"
        "shell line; items in it are never run as shell code.\n"
        "\n"
        "  vow map -j8 gzip ::: *.log\n"
        "  vow map -j20 --rate 50/s curl -sf {} :::: urls\n"
        "  vow map --retries 4 --timeout 30s --log run.jsonl ./fetch < ids\n"
        "  vow map 'sort \"{}\" > \"{.}.sorted\"' ::: *.txt\n",
    .options = map_options,
    .run = cmd_map,
    .usage_code = EXIT_USAGE};

const struct verb_def run_verb = {
    .name = "run",
    .usage = "[OPTION...] [--] COMMAND [ARG...]",
    .about = "run one command with retries and time limits",
    .story =
        "The exit code is that of the command; 128+n if signal n killed it,\n"
        "124 if --timeout or --deadline killed it.\n"
        "\n"
        "  vow run --retries 5 --backoff 1s..1m -- ./deploy\n"
        "  vow run --timeout 30s --kill-seq INT,2s,KILL -- make check\n"
        "  vow run --pool heavy -j4 -- ./encode a.mkv\n",
    .options = run_options,
    .run = cmd_run,
    .usage_code = EXIT_BROKEN};

static void settings_take_option(void *settings, int id,
                                 const struct options *o);
static void settings_read_option(struct settings *s, int id,
                                 const struct options *o);
static void read_limit_option(struct settings *s, int id,
                              const struct options *o);
static void read_time_option(struct settings *s, int id,
                             const struct options *o);
static void read_output_option(struct settings *s, int id,
                               const struct options *o);
static void check_weight(const struct options *o);
static char read_delimiter(const struct options *o);
static char *read_separator(const struct options *o);
static bool looks_like_pattern(const char *s);
static char *unescape_value(const struct options *o);
static int choose_word(const struct options *o, const char *const *words);
static void settings_check_value(const struct options *o, const char *sentence);
static void settings_apply_tty(struct settings *s, const struct options *o);
static void settings_check_conflicts(const struct settings *s,
                                     const struct options *o);

int settings_read(struct settings *s, const struct verb_def *verb, int argc,
                  char **argv)
{
    memset(s, 0, sizeof(*s));
    s->input = (struct input_opts){.delimiter = '\n', .per_job = 1};
    s->backoff = (struct backoff){.first_ms = 100, .most_ms = 10000};
    memset(s->retry_on.codes, 0xff, sizeof(s->retry_on.codes));
    s->retry_on.signal = s->retry_on.timeout = true;
    (void)units_kill_seq("TERM,5s,KILL", &s->kill);
    store_config(verb, settings_take_option, s);
    uint32_t jobs = s->jobs;
    struct options o = options_of(verb, argc, argv);
    int id;
    s->jobs = 0;
    s->output_said = s->retry_on_said = false;
    while ((id = options_next(&o)) > 0)
        settings_take_option(s, id, &o);
    if (s->tty)
        settings_apply_tty(s, &o);
    settings_check_conflicts(s, &o);
    if (s->jobs == 0 && (verb == &map_verb || s->pool != NULL))
        s->jobs = jobs; /* config files: `run` uses -j only with --pool */
    return o.at;
}

static void settings_take_option(void *settings, int id,
                                 const struct options *o)
{
    struct settings *s = settings;
    if (!store_option(&s->store, id, o))
        settings_read_option(s, id, o);
}

static void settings_read_option(struct settings *s, int id,
                                 const struct options *o)
{
    uint64_t n;
    switch ((enum id)id) {
    case ID_FILE:
        s->files = mem_resize(s->files, (s->n_files + 1) * sizeof(s->files[0]));
        s->files[s->n_files++] = o->value;
        break;
    case ID_NUL:
        s->input.delimiter = '\0';
        break;
    case ID_DELIMITER:
        s->input.delimiter = read_delimiter(o);
        break;
    case ID_COLUMNS:
        s->input.columns = read_separator(o);
        break;
    case ID_HEADER:
        if (o->value != NULL && strcmp(o->value, ":") != 0)
            options_refuse(o, "use --header without a value, or --header=:");
        s->input.header = true;
        break;
    case ID_PER_JOB:
        settings_check_value(o, units_count(o->value, &n));
        if (n == 0)
            options_refuse(o, "a job needs at least one item");
        s->input.per_job = n;
        break;
    case ID_REPLACE:
        if (o->value[0] == '\0')
            options_refuse(o, "a placeholder needs at least one character");
        s->replace = o->value;
        break;
    case ID_SHELL:
        s->shell = o->value;
        break;
    case ID_EXEC:
        s->exec = true;
        break;
    case ID_TTY:
        s->tty = true;
        break;
    default:
        read_limit_option(s, id, o);
    }
}

static void read_limit_option(struct settings *s, int id,
                              const struct options *o)
{
    char *end;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    switch ((enum id)id) {
    case ID_JOBS:
        settings_check_value(
            o, units_jobs(o->value, cpus < 1 ? 1 : (uint32_t)cpus, &s->jobs));
        break;
    case ID_RATE:
        settings_check_value(o, units_rate(o->value, &s->rate));
        break;
    case ID_EVEN:
        s->even = true;
        break;
    case ID_WEIGHT:
        s->weight = o->value;
        check_weight(o);
        break;
    case ID_DELAY:
        settings_check_value(o, units_duration(o->value, &s->delay_ms));
        break;
    case ID_LOAD:
        s->load = strtod(o->value, &end);
        if (*end != '\0' || end == o->value || !(s->load > 0))
            options_refuse(o, "a load is a number above 0, such as 4 or 1.5");
        break;
    case ID_MEMFREE:
        settings_check_value(o, units_size(o->value, &s->memfree));
        break;
    case ID_QUEUE:
        settings_check_value(o, units_count(o->value, &s->queue));
        if (s->queue == 0 || s->queue > 1000000)
            options_refuse(o, "a queue has 1 to 1000000 items");
        break;
    case ID_POOL:
        s->pool = o->value;
        break;
    default:
        read_time_option(s, id, o);
    }
}

static void read_time_option(struct settings *s, int id,
                             const struct options *o)
{
    uint64_t n;
    switch ((enum id)id) {
    case ID_RETRIES:
        settings_check_value(o, units_count(o->value, &n));
        if (n > 1000000)
            options_refuse(o, "use at most 1000000");
        s->retries = (uint32_t)n;
        break;
    case ID_BACKOFF:
        settings_check_value(o, units_backoff(o->value, &s->backoff));
        break;
    case ID_RETRY_ON:
        memset(&s->retry_on, 0, sizeof(s->retry_on));
        s->retry_on_said = true;
        settings_check_value(o, units_retry_on(o->value, &s->retry_on));
        break;
    case ID_TIMEOUT:
        settings_check_value(o, units_duration(o->value, &s->timeout_ms));
        break;
    case ID_DEADLINE:
        settings_check_value(o, units_duration(o->value, &s->deadline_ms));
        break;
    case ID_STOP_AFTER:
        settings_check_value(o, units_duration(o->value, &s->stop_after_ms));
        break;
    case ID_KILL_SEQ:
        settings_check_value(o, units_kill_seq(o->value, &s->kill));
        break;
    case ID_FIRST_ERROR:
        s->halt = (struct halt){.when = HALT_NOW, .what = HALT_FAIL, .n = 1};
        break;
    case ID_HALT:
        settings_check_value(o, units_halt(o->value, &s->halt));
        break;
    default:
        read_output_option(s, id, o);
    }
}

static void read_output_option(struct settings *s, int id,
                               const struct options *o)
{
    static const char *const outputs[] = {"group", "line", "live", "none",
                                          NULL};
    static const char *const styles[] = {"vow", "count", "xargs", NULL};
    static const char *const progress[] = {"auto", "bar", "plain", "none",
                                           NULL};
    static const char *const colors[] = {"auto", "always", "never", NULL};
    switch ((enum id)id) {
    case ID_EXIT:
        s->exit_style = (enum exit_style)choose_word(o, styles);
        break;
    case ID_OUTPUT:
        s->output = (enum output)choose_word(o, outputs);
        s->output_said = true;
        break;
    case ID_KEEP_ORDER:
        s->keep_order = true;
        break;
    case ID_TAG:
        s->tag = true;
        break;
    case ID_RESULTS:
        s->results = o->value;
        break;
    case ID_JSON:
        s->json = true;
        break;
    case ID_LOG:
        s->log = o->value;
        break;
    case ID_JOBLOG:
        s->joblog = o->value;
        break;
    case ID_RESUME:
        s->resume = true;
        break;
    case ID_RESUME_FAILED:
        s->resume_failed = true;
        break;
    case ID_DRY_RUN:
        s->dry_run = true;
        break;
    case ID_BAR:
    case ID_ETA:
        s->bar = true;
        break;
    case ID_PROGRESS:
        s->progress =
            o->value == NULL ? "auto" : progress[choose_word(o, progress)];
        break;
    case ID_COLOR:
        s->color = colors[choose_word(o, colors)];
        break;
    case ID_VERBOSE:
        s->verbose = true;
        break;
    default:
        break;
    }
}

/* ---- values -------------------------------------------------------------- */

static void settings_check_value(const struct options *o, const char *sentence)
{
    if (sentence != NULL)
        options_refuse(o, sentence);
}

static int choose_word(const struct options *o, const char *const *words)
{
    static char sentence[128];
    size_t n = 0;
    for (int i = 0; words[i] != NULL; i++)
        if (strcmp(o->value, words[i]) == 0)
            return i;
    n += (size_t)snprintf(sentence, sizeof(sentence), "use");
    for (int i = 0; words[i] != NULL; i++)
        n += (size_t)snprintf(sentence + n, sizeof(sentence) - n, "%s %s",
                              i == 0                 ? ""
                              : words[i + 1] == NULL ? " or"
                                                     : ",",
                              words[i]);
    options_refuse(o, sentence);
}

/* Checks the form of --weight: a number from 1 on, or a column like {2}. */
static void check_weight(const struct options *o)
{
    uint64_t n = 0;
    char *end = NULL;
    bool column = o->value[0] == '{';
    if (column)
        n = strtoul(o->value + 1, &end, 10);
    if (column ? n == 0 || strcmp(end, "}") != 0
               : units_count(o->value, &n) != NULL || n == 0)
        options_refuse(o, "a weight is a number from 1 on, or a column: {2}");
}

static char read_delimiter(const struct options *o)
{
    char *s = unescape_value(o);
    bool nul = strcmp(o->value, "\\0") == 0;
    char c = s[0];
    if (!nul && (s[0] == '\0' || s[1] != '\0'))
        options_refuse(o, "a delimiter is one byte, or \\n, \\t, \\0, \\xHH");
    free(s);
    return nul ? '\0' : c;
}

static char *read_separator(const struct options *o)
{
    char *s = unescape_value(o);
    if (s[0] == '\0')
        options_refuse(o, "use a separator of at least one character");
    if (looks_like_pattern(o->value))
        options_refuse(o, "the separator is plain text, not a pattern; put a "
                          "backslash before each of + * ? [ { | that is part "
                          "of it, or make the separators equal first, as with "
                          "tr -s");
    return s;
}

/* Returns whether the text looks like a regular expression: ' +', ', *',
 * '[,;]', ' {2,}' or ',|;'. Signs alone or doubled, as + or ||, and | before a
 * blank are plain separators. */
static bool looks_like_pattern(const char *s)
{
    for (const char *c = s; *c != '\0'; c++) {
        if (*c == '\\' && c[1] != '\0') {
            c++;
            continue;
        }
        bool first = c == s;
        bool doubled = c[1] == *c || (!first && c[-1] == *c);
        if (strchr("+*?", *c) != NULL && !first && !doubled)
            return true;
        if (*c == '|' && !first && !doubled && strchr(" \t", c[1]) == NULL)
            return true;
        if (*c == '[' && c[1] != '\0' && strchr(c + 2, ']') != NULL)
            return true;
        if (*c == '{' && !first && c[1] >= '0' && c[1] <= '9')
            return true;
    }
    return false;
}

/* Returns the value with \n \t \r \xHH and escaped signs replaced; owned by the
 * caller. \0, for a delimiter, gives an empty text. */
static char *unescape_value(const struct options *o)
{
    struct text t = {0};
    text_add(&t, "", 0);
    if (strcmp(o->value, "\\0") == 0)
        return t.at; /* see read_delimiter() */
    for (const char *s = o->value; *s != '\0'; s++) {
        static const char letters[] = "ntr", meant[] = "\n\t\r";
        char hex[3] = {0}, c = *s;
        if (c != '\\' || s[1] == '\0') {
            text_add(&t, &c, 1);
            continue;
        }
        c = *++s;
        const char *known = strchr(letters, c);
        if (known != NULL) {
            c = meant[known - letters];
        } else if (c == 'x' && isxdigit((unsigned char)s[1]) &&
                   isxdigit((unsigned char)s[2])) {
            memcpy(hex, s + 1, 2);
            c = (char)strtol(hex, NULL, 16);
            s += 2;
        } else if (isalnum((unsigned char)c)) {
            options_refuse(o, "after a backslash use n, t, r, xHH or a "
                              "punctuation character: this is plain text, not "
                              "a pattern");
        }
        text_add(&t, &c, 1);
    }
    return t.at;
}

/* Sets a single job with live output, as xargs -o and parallel --tty do. */
static void settings_apply_tty(struct settings *s, const struct options *o)
{
    int code = o->verb->usage_code;
    const char *verb = o->verb->name;
    if (s->jobs > 1 || s->pool != NULL)
        die(code,
            "vow %s: --tty runs one job at a time: leave out -j and --pool",
            verb);
    if (s->output_said && s->output != OUTPUT_LIVE)
        die(code,
            "vow %s: with --tty jobs write to the terminal themselves: "
            "leave out --output",
            verb);
    if (s->bar || s->progress != NULL)
        die(code,
            "vow %s: with --tty the terminal is the job's: leave out "
            "--bar and --progress",
            verb);
    s->jobs = 1;
    s->output = OUTPUT_LIVE;
}

static void settings_check_conflicts(const struct settings *s,
                                     const struct options *o)
{
    int code = o->verb->usage_code;
    const char *verb = o->verb->name;
    if ((s->resume || s->resume_failed) && s->log == NULL && s->joblog == NULL)
        die(code,
            "vow %s: --resume requires --log FILE, the log of the run to "
            "resume",
            verb);
    if (s->retry_on_said && s->retries == 0)
        die(code, "vow %s: --retry-on requires --retries N", verb);
    if (s->even && s->rate.n == 0)
        die(code, "vow %s: --even requires --rate N/U", verb);
    if (s->pool == NULL && (s->store.url != NULL || s->store.lease_ms > 0 ||
                            s->store.pulse_ms > 0))
        die(code, "vow %s: --store, --lease and --pulse require --pool", verb);
    if (s->jobs > 0 && s->pool == NULL && o->verb == &run_verb)
        die(code, "vow %s: -j requires --pool", verb);
    if (s->pool != NULL && s->even && s->weight != NULL)
        die(code, "vow %s: --weight cannot be combined with --pool and --even",
            verb);
    if (s->json && s->output != OUTPUT_GROUP)
        die(code, "vow %s: --json requires --output group", verb);
    if (s->results != NULL &&
        (s->output == OUTPUT_LINE || s->output == OUTPUT_LIVE))
        die(code, "vow %s: --results requires --output group or none", verb);
    if (s->tag && s->output == OUTPUT_LIVE)
        die(code, "vow %s: --tag requires --output group or line", verb);
    if (s->keep_order && s->output != OUTPUT_GROUP)
        die(code, "vow %s: -k requires --output group", verb);
}
