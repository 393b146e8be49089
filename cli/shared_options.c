/* SPDX-License-Identifier: MIT */
/* shared_options.c - the option tables of `share` and `pipe`, and reading the
 * options.
 *
 * HOW   NAME stands anywhere before the command: `vow share NAME --ttl 1h -- x`
 *       is the same as `vow share --ttl 1h NAME -- x`. `pipe` has the options
 *       of `share` that make sense for several commands, with the same ids.
 */
#include "shared_options.h"
#include "say.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum id {
    ID_END,
    ID_ARGV,
    ID_CWD,
    ID_ENV,
    ID_FILE,
    ID_TTL,
    ID_STALE,
    ID_FAIL_TTL,
    ID_MAX_OUTPUT,
    ID_PEEK,
    ID_FORCE,
    ID_FOLLOW,
    ID_STEP,
    ID_STREAM,
    ID_TAKEOVERS,
    ID_ON_LOST,
    ID_TIMEOUT,
    ID_KILL_SEQ,
    ID_FENCED,
    ID_ONCE,
    ID_ROLE_FD,
    ID_VERBOSE,
    ID_REFRESH
};

enum { MAX_OUTPUT = 64 << 20, MOST_OUTPUT = 1 << 30, TAKEOVERS_MAX = 1000 };

/* clang-format off */
#define NAME_ROWS                                                              \
    {ID_CWD, '\0', "cwd", NULL, "the current folder is part of the name",      \
     NULL, NULL},                                                              \
    {ID_ENV, '\0', "env", "VAR", "a variable is part of the name", NULL, NULL},\
    {ID_FILE, '\0', "file", "FILE",                                            \
     "the content of a file is part of the name", NULL, "FILE"}
#define RESULT_ROWS                                                            \
    {ID_TTL, '\0', "ttl", "D",                                                 \
     "keep the result for D (default 0: for waiters only)", "Result", NULL},   \
    {ID_FAIL_TTL, '\0', "fail-ttl", "D", "keep a failure for D (default 0)",   \
     NULL, NULL},                                                              \
    {ID_MAX_OUTPUT, '\0', "max-output", "SIZE",                                \
     "kill a command that writes more (default 64M)", NULL, NULL}
#define FORCE_ROW                                                              \
    {ID_FORCE, '\0', "force", NULL,                                            \
     "ignore a cached result; join a run under way", NULL, NULL}
#define RUN_ROWS                                                               \
    {ID_TAKEOVERS, '\0', "takeovers", "N",                                     \
     "how many lost runners are replaced (default 3)", NULL, NULL},            \
    {ID_ON_LOST, '\0', "on-lost", "HOW",                                       \
     "after a lost lease, kill the command (default) or keep it", NULL,        \
     "kill keep"},                                                             \
    {ID_TIMEOUT, '\0', "timeout", "D", "kill the command after D", NULL,       \
     NULL},                                                                    \
    {ID_KILL_SEQ, '\0', "kill-seq", "SEQ",                                     \
     "signals to kill it with (default TERM,5s,KILL)", NULL, NULL},            \
    {ID_FENCED, '\0', "fenced", NULL,                                          \
     "at most one result; without the store nothing runs", NULL, NULL}
#define SHOW_ROWS                                                              \
    {ID_VERBOSE, 'v', "verbose", NULL,                                         \
     "print which process ran the command", "Show", NULL},                     \
    {ID_ROLE_FD, '\0', "role-fd", "N",                                         \
     "write the same as JSON to a file descriptor", NULL, NULL}

static const struct option_def share_options[] = {
    {ID_ARGV, '\0', "argv", NULL, "the command line is the name", "Name",
     NULL},
    NAME_ROWS,
    RESULT_ROWS,
    {ID_STALE, '\0', "stale", "D",
     "if older than D, return it and refresh in background", NULL, NULL},
    FORCE_ROW,
    WAIT_ROWS,
    {ID_PEEK, '\0', "peek", NULL,
     "print a cached result only; exit 66 without one", NULL, NULL},
    {ID_FOLLOW, '\0', "follow", NULL, "show the output as it comes", NULL,
     NULL},
    LEASE_ROWS,
    RUN_ROWS,
    {ID_ONCE, '\0', "once", NULL,
     "never take over: if the runner dies, NAME is in doubt", NULL, NULL},
    SHOW_ROWS,
    STORE_ROWS,
    {ID_REFRESH, '\0', "refresh", NULL, NULL, NULL, NULL},
    {.id = ID_END}};

static const struct option_def pipe_options[] = {
    {ID_STEP, 's', "step", "NAME=CMD",
     "a step: a shell line that reads the step before", "Steps", NULL},
    {ID_STREAM, '\0', "stream", NULL,
     "a step reads while the step before still writes", NULL, NULL},
    NAME_ROWS,
    RESULT_ROWS,
    FORCE_ROW,
    LEASE_ROWS,
    RUN_ROWS,
    SHOW_ROWS,
    STORE_ROWS,
    {.id = ID_END}};
/* clang-format on */

const struct verb_def share_verb = {
    .name = "share",
    .usage = "[OPTION...] NAME -- COMMAND [ARG...]",
    .about = "run a command once for all callers of a name",
    .story =
        "If several processes ask for NAME at the same time, one of them runs\n"
        "the command. All of them print its output and exit with its exit\n"
        "code. If the runner dies, a waiter takes over. The stdin of the\n"
        "command is /dev/null.\n"
        "\n"
        "  vow share \"nightly:$(date +%F)\" --ttl 20h -- ./nightly\n"
        "  vow share --argv --env KUBECONFIG --ttl 10m -- kubectl get pods\n"
        "  vow share \"img:$SHA\" --ttl 1d --follow -- docker build .\n",
    .operands = "NAME COMMAND",
    .options = share_options,
    .run = cmd_share,
    .usage_code = EXIT_BROKEN};

const struct verb_def pipe_verb = {
    .name = "pipe",
    .usage = "[OPTION...] -s NAME=CMD [-s NAME=CMD]...",
    .about = "run a pipeline; shared first steps run once",
    .story =
        "Each step is a shell line that reads the output of the step before.\n"
        "The name of a step is made from its line and all lines before it:\n"
        "if several pipelines begin with the same steps, each of these steps\n"
        "runs once.\n"
        "\n"
        "  vow pipe -s fetch='curl -sf \"$URL\"' -s rows='jq -c .rows[]' \\\n"
        "      --env URL --ttl 1h\n",
    .operands = "",
    .options = pipe_options,
    .run = cmd_pipe,
    .usage_code = EXIT_BROKEN};

static bool shared_read_words(struct shared *s, struct options *o);
static bool next_is_name(const struct options *o);
static void shared_take_option(void *shared, int id, const struct options *o);
static void shared_read_option(struct shared *s, int id,
                               const struct options *o);
static void shared_read_run_option(struct shared *s, int id,
                                   const struct options *o);
static void shared_read_step(struct shared *s, const struct options *o);
static void add_depends(struct shared *s, const struct depends *d);
static vow_field file_hash_field(const struct options *o);
static char *current_folder(const struct options *o);
static int compare_depends(const void *a, const void *b);
static void shared_check_value(const struct options *o, const char *sentence);
static void shared_check_conflicts(const struct shared *s,
                                   const struct options *o, bool dashes);
static void name_add_field(vow_field **fields, size_t *n, vow_field f);

void shared_read(struct shared *s, const struct verb_def *verb, int argc,
                 char **argv)
{
    *s = (struct shared){
        .store = store_opts_of(verb), .max_output = MAX_OUTPUT, .role_fd = -1};
    (void)units_kill_seq("TERM,5s,KILL", &s->kill);
    store_config(verb, shared_take_option, s);
    struct options o = options_of(verb, argc, argv);
    bool dashes = shared_read_words(s, &o);
    if (s->n_depends > 1)
        qsort(s->depends, s->n_depends, sizeof(s->depends[0]), compare_depends);
    if (o.at < argc) {
        s->command = argv + o.at;
        s->n_command = (size_t)(argc - o.at);
    }
    s->name_by_place = s->name != NULL && s->command != NULL && !dashes;
    shared_check_conflicts(s, &o, dashes);
}

/* Reads options, NAME, options. Returns whether the command follows a "--". */
static bool shared_read_words(struct shared *s, struct options *o)
{
    for (;;) {
        int before = o->at;
        int id = options_next(o);
        if (id > 0) {
            shared_take_option(s, id, o);
            continue;
        }
        bool dashes = o->at > before;
        if (o->at == o->argc || s->by_argv || s->name != NULL ||
            (dashes && !next_is_name(o)))
            return dashes;
        s->name = o->argv[o->at++];
    }
}

/* Returns whether the next word is a NAME like -x between two "--". */
static bool next_is_name(const struct options *o)
{
    return o->verb == &share_verb && o->at + 1 < o->argc &&
           strcmp(o->argv[o->at + 1], "--") == 0;
}

static void shared_take_option(void *shared, int id, const struct options *o)
{
    struct shared *s = shared;
    if (!store_option(&s->store, id, o))
        shared_read_option(s, id, o);
}

static void shared_read_option(struct shared *s, int id,
                               const struct options *o)
{
    struct depends d = {.kind = "env", .key = o->value};
    const char *value;
    switch ((enum id)id) {
    case ID_ARGV:
        s->by_argv = true;
        break;
    case ID_CWD:
        d = (struct depends){.kind = "cwd", .key = "", .set = true};
        d.value = vow_field_text(current_folder(o));
        add_depends(s, &d);
        break;
    case ID_ENV:
        if (o->value[0] == '\0' || strchr(o->value, '=') != NULL)
            options_refuse(o, "use the name of a variable, such as HOME");
        value = getenv(o->value);
        d.set = value != NULL;
        d.value = vow_field_text(d.set ? value : "");
        add_depends(s, &d);
        break;
    case ID_FILE:
        d = (struct depends){.kind = "file", .key = o->value, .set = true};
        d.value = file_hash_field(o);
        add_depends(s, &d);
        break;
    case ID_TTL:
        shared_check_value(o, units_duration(o->value, &s->ttl_ms));
        break;
    case ID_FAIL_TTL:
        shared_check_value(o, units_duration(o->value, &s->fail_ttl_ms));
        break;
    case ID_STALE:
        shared_check_value(o, units_duration(o->value, &s->stale_ms));
        break;
    case ID_MAX_OUTPUT:
        shared_check_value(o, units_size(o->value, &s->max_output));
        if (s->max_output > MOST_OUTPUT)
            options_refuse(o, "at most 1G can be shared");
        break;
    default:
        shared_read_run_option(s, id, o);
    }
}

static void shared_read_run_option(struct shared *s, int id,
                                   const struct options *o)
{
    uint64_t n;
    switch ((enum id)id) {
    case ID_PEEK:
        s->peek = true;
        break;
    case ID_FORCE:
        s->force = true;
        break;
    case ID_FOLLOW:
        s->follow = true;
        break;
    case ID_STEP:
        shared_read_step(s, o);
        break;
    case ID_STREAM:
        s->stream = true;
        break;
    case ID_TAKEOVERS:
        shared_check_value(o, units_count(o->value, &n));
        if (n > TAKEOVERS_MAX)
            options_refuse(o, "use 0 to 1000; see also --once");
        s->takeovers = n == 0 ? VOW_NO_TAKEOVER : (uint32_t)n;
        break;
    case ID_ON_LOST:
        s->keep_lost = strcmp(o->value, "keep") == 0;
        if (!s->keep_lost && strcmp(o->value, "kill") != 0)
            options_refuse(o, "use kill or keep");
        break;
    case ID_TIMEOUT:
        shared_check_value(o, units_duration(o->value, &s->timeout_ms));
        break;
    case ID_KILL_SEQ:
        shared_check_value(o, units_kill_seq(o->value, &s->kill));
        break;
    case ID_FENCED:
        if (s->mode != VOW_ONCE) /* --once is stricter */
            s->mode = VOW_FENCED;
        break;
    case ID_ONCE:
        s->mode = VOW_ONCE;
        break;
    case ID_ROLE_FD:
        shared_check_value(o, units_count(o->value, &n));
        if (s->refresh)
            break; /* the descriptor is closed */
        if (n > 1000000 || fcntl((int)n, F_SETFD, FD_CLOEXEC) < 0)
            options_refuse(o, "no such file descriptor");
        s->role_fd = (int)n;
        break;
    case ID_VERBOSE:
        s->verbose = true;
        break;
    case ID_REFRESH:
        s->refresh = true;
        break;
    default:
        break;
    }
}

static void shared_read_step(struct shared *s, const struct options *o)
{
    size_t n = strcspn(o->value, "=");
    if (n == 0 || o->value[n] == '\0' || o->value[n + 1] == '\0')
        options_refuse(o, "a step is NAME=COMMAND, as in -s sort='sort -u'");
    s->steps = mem_resize(s->steps, (s->n_steps + 1) * sizeof(s->steps[0]));
    s->steps[s->n_steps++] = (struct step_words){.label = mem_copy(o->value, n),
                                                 .script = o->value + n + 1};
}

static void shared_check_value(const struct options *o, const char *sentence)
{
    if (sentence != NULL)
        options_refuse(o, sentence);
}

static void shared_check_conflicts(const struct shared *s,
                                   const struct options *o, bool dashes)
{
    const char *sentence = NULL;
    bool share = o->verb == &share_verb;
    if (!share && s->n_steps == 0)
        sentence = "no step given: -s NAME=COMMAND";
    else if (!share && (s->name != NULL || s->command != NULL))
        sentence = "unexpected argument: give each step as -s NAME=COMMAND";
    else if (share && s->by_argv &&
             (s->name != NULL || (!dashes && s->n_command > 1 &&
                                  strcmp(s->command[1], "--") == 0)))
        sentence = "with --argv the command line is the name: leave NAME out";
    else if (share && s->name == NULL && !s->by_argv)
        sentence = "no name given: vow share NAME -- COMMAND, or --argv";
    else if (share && s->name != NULL && s->name[0] == '\0')
        sentence = "a name has at least one character";
    else if (share && s->command == NULL && (s->by_argv || !s->peek))
        sentence = "no command given: vow share NAME -- COMMAND";
    else if (s->peek && s->force)
        sentence = "--peek and --force exclude each other";
    else if (s->mode != VOW_SHARED && s->store.down == VOW_DOWN_RUN)
        sentence = "--fenced and --once require the store: use --if-store-down "
                   "wait or fail";
    else if (s->mode == VOW_ONCE && (s->stale_ms > 0 || s->refresh))
        sentence = "--once cannot be combined with --stale: a refresh runs "
                   "the command again";
    if (sentence != NULL)
        die(o->verb->usage_code, "vow %s: %s. See vow %s --help", o->verb->name,
            sentence, o->verb->name);
}

/* ---- --env, --file and --cwd --------------------------------------------- */

static void add_depends(struct shared *s, const struct depends *d)
{
    s->depends =
        mem_resize(s->depends, (s->n_depends + 1) * sizeof(s->depends[0]));
    s->depends[s->n_depends++] = *d;
}

static int compare_depends(const void *a, const void *b)
{
    const struct depends *x = a, *y = b;
    int kind = strcmp(x->kind, y->kind);
    return kind != 0 ? kind : strcmp(x->key, y->key);
}

static char *current_folder(const struct options *o)
{
    char *path = getcwd(NULL, 0);
    if (path == NULL)
        options_refuse(o, strerror(errno));
    return path;
}

/* Returns the hash of the file's content; never freed. Reads in pieces: a file
 * may be large. */
static vow_field file_hash_field(const struct options *o)
{
    enum { PIECE = 1 << 20 };
    vow_name *hash = mem_new(sizeof(*hash));
    char *piece = mem_new(PIECE);
    ssize_t got = 1;
    int fd = open(o->value, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && got > 0) {
        vow_field field = {.data = piece};
        while (field.size < PIECE &&
               (got = read(fd, piece + field.size, PIECE - field.size)) > 0)
            field.size += (size_t)got;
        *hash = vow_name_step(NULL, hash, &field, 1);
    }
    if (fd < 0 || got < 0)
        options_refuse(o, strerror(errno));
    (void)close(fd);
    free(piece);
    return (vow_field){.data = hash->hash, .size = sizeof(hash->hash)};
}

/* ---- the name ------------------------------------------------------------ */

vow_name shared_name(const struct shared *s)
{
    vow_field *fields = NULL;
    char count[24];
    size_t n = 0;
    name_add_field(&fields, &n, vow_field_text(s->by_argv ? "argv" : "name"));
    if (s->by_argv) {
        (void)snprintf(count, sizeof(count), "%zu", s->n_command);
        name_add_field(&fields, &n, vow_field_text(count));
        for (size_t i = 0; i < s->n_command; i++)
            name_add_field(&fields, &n, vow_field_text(s->command[i]));
    } else {
        name_add_field(&fields, &n, vow_field_text(s->name));
    }
    vow_field *more;
    size_t n_more = shared_source(s, &more);
    for (size_t i = 0; i < n_more; i++)
        name_add_field(&fields, &n, more[i]);
    vow_name name = vow_name_make(NULL, fields, n);
    free(more);
    free(fields);
    return name;
}

/* The path of a --file is not part of the name: another machine may have
 * another path. */
size_t shared_source(const struct shared *s, vow_field **ret_fields)
{
    size_t n = 0;
    *ret_fields = NULL;
    for (size_t i = 0; i < s->n_depends; i++) {
        const struct depends *d = &s->depends[i];
        bool env = strcmp(d->kind, "env") == 0;
        name_add_field(ret_fields, &n, vow_field_text(d->kind));
        name_add_field(ret_fields, &n, vow_field_text(env ? d->key : ""));
        name_add_field(ret_fields, &n, vow_field_text(d->set ? "=" : ""));
        name_add_field(ret_fields, &n, d->value);
    }
    return n;
}

static void name_add_field(vow_field **fields, size_t *n, vow_field f)
{
    *fields = mem_resize(*fields, (*n + 1) * sizeof(f));
    (*fields)[(*n)++] = f;
}
