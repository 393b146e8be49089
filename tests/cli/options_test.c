/* SPDX-License-Identifier: MIT */
/* options_test.c - reading options, what is said about wrong ones, the help,
 * and completion in real shells.
 *
 * The table here is of two made-up verbs that have every kind of option.
 */
#include "child_kit.h"
#include "harness.h"
#include "options.h"
#include "say.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROOM = 65536 };

enum { FILE_OF = 1, NUL, JOBS, RATE, OUTPUT, KEEP, FOLDER, SHELL, COLOR, LONG };

static const struct option_def map_options[] = {
    {.id = FILE_OF,
     .letter = 'a',
     .name = "arg-file",
     .value = "FILE",
     .help = "read items from FILE",
     .group = "Input",
     .words = "FILE"},
    {.id = NUL, .letter = '0', .help = "items end with NUL"},
    {.id = JOBS,
     .letter = 'j',
     .name = "jobs",
     .value = "N|N%|Nx",
     .help = "so many at once: a number, a share or a multiple of the "
             "processors, of which there may be many (default: 1x)",
     .group = "Limits"},
    {.id = JOBS, .letter = 'P', .value = "N"},
    {.id = RATE,
     .name = "rate",
     .value = "N/U",
     .help = "start N per U, it's [exact]: 5/s"},
    {.id = OUTPUT,
     .name = "output",
     .value = "HOW",
     .help = "when to show output",
     .group = "Output",
     .words = "group line live none"},
    {.id = KEEP, .letter = 'k', .name = "keep", .help = "keep the order"},
    {.id = FOLDER,
     .name = "results",
     .value = "DIR",
     .help = "write files",
     .words = "DIR"},
    {.id = SHELL,
     .name = "shell",
     .value = "PATH",
     .help = "another shell",
     .words = "COMMAND"},
    {.id = COLOR,
     .name = "color",
     .value = "[WHEN]",
     .help = "colours",
     .words = "auto always never"},
    {.id = LONG,
     .name = "a-name-that-is-long",
     .value = "VALUE",
     .help = "has its own line"},
    {.id = 0}};

static const struct verb_def map_verb = {
    .name = "map",
    .usage = "[OPTION...] COMMAND [ARG...] [::: INPUT...]",
    .about = "run COMMAND once per input",
    .story = "Examples:\n\n    vow map -j8 gzip ::: *.log\n\n"
             "A paragraph of one long line that must be broken somewhere "
             "before the eightieth column is reached.\n",
    .options = map_options,
    .usage_code = EXIT_USAGE};

static const struct verb_def run_verb = {.name = "run",
                                         .usage = "[--] COMMAND",
                                         .about = "run one COMMAND, 'as is'",
                                         .usage_code = EXIT_BROKEN};

static const struct option_def held_options[] = {
    {.id = FOLDER, .name = "store", .value = "ADDRESS", .help = "where"},
    {.id = KEEP, .name = "keep", .help = "keep it"},
    {.id = 0}};

static const struct verb_def held_verb = {.name = "held",
                                          .usage = "NAME [--] COMMAND",
                                          .about = "hold a name",
                                          .operands = "NAME COMMAND",
                                          .options = held_options,
                                          .usage_code = EXIT_BROKEN};

static const struct verb_def seen_verb = {.name = "seen",
                                          .usage = "[NAME]",
                                          .about = "see names",
                                          .operands = "NAME",
                                          .usage_code = EXIT_BROKEN};

static const struct verb_def bare_verb = {.name = "bare",
                                          .usage = "",
                                          .about = "take nothing",
                                          .operands = "",
                                          .usage_code = EXIT_BROKEN};

const struct verb_def *const verbs[] = {&map_verb,  &run_verb,  &held_verb,
                                        &seen_verb, &bare_verb, NULL};

struct line {
    const struct verb_def *verb;
    int argc;
    char *argv[16];
};

static struct line line_of(const char *s);
static void check_read(const char *s, const char *want);
static void check_said(const char *s, int code, const char *want);
static void read_all(void *arg);
static void check_completed(const char *bash_words, const char *want);
static void check_syntax(const char *shell, const char *path);
static char *script_of(const char *shell);

TEST(options, read_every_spelling)
{
    check_read("-j8 x", "3=8|x");
    check_read("-j 8 x", "3=8|x");
    check_read("--jobs 8 x", "3=8|x");
    check_read("--jobs=8 x", "3=8|x");
    check_read("-P8 x", "3=8|x");
    check_read("-k0 x", "6 2|x");
    check_read("-k0j8 x", "6 2 3=8|x");
    check_read("-k0j 8 x", "6 2 3=8|x");
    check_read("--keep --rate 5/s x", "6 4=5/s|x");
    check_read("--rate= x", "4=|x");
    check_read("--rate=a=b x", "4=a=b|x");
    check_read("-j -5 x", "3=-5|x");
    check_read("-j --keep x", "3=--keep|x");
    check_read("--color x", "9|x");
    check_read("--color=always x", "9=always|x");
    check_read("--color always x", "9=always|x");
    check_read("--color alwaysx x", "9|alwaysx x");
    check_read("--color", "9|");
    check_read("", "|");
}

TEST(options, end_where_the_command_begins)
{
    check_read("gzip -k -j8", "|gzip -k -j8");
    check_read("-k gzip --help", "6|gzip --help");
    check_read("-k -- -j8 -k", "6|-j8 -k");
    check_read("--", "|");
    check_read("-- --", "|--");
    check_read("-k - -k", "6|- -k");
    check_read("::: -k", "|::: -k");
    check_read("-j -- x", "3=--|x");
}

TEST(options, read_nothing_of_an_empty_word)
{
    char *argv[] = {"map", "", "-k", NULL};
    struct options o = options_of(&map_verb, 3, argv);
    CHECK_INT_EQ(options_next(&o), 0);
    CHECK_INT_EQ(o.at, 1);
    CHECK_INT_EQ(options_next(&o), 0);
    CHECK_INT_EQ(o.at, 1);
}

TEST(options, remember_how_they_were_spelled)
{
    char *argv[] = {"map", "--rate=5", "-kj8", NULL};
    struct options o = options_of(&map_verb, 3, argv);
    CHECK_INT_EQ(options_next(&o), RATE);
    CHECK_STR_EQ(o.spelled, "--rate");
    CHECK_INT_EQ(options_next(&o), KEEP);
    CHECK_STR_EQ(o.spelled, "-k");
    CHECK(o.value == NULL);
    CHECK_INT_EQ(options_next(&o), JOBS);
    CHECK_STR_EQ(o.spelled, "-j");
    CHECK_STR_EQ(o.value, "8");
}

TEST(options, say_which_one_was_meant)
{
    check_said("--rat 5", 2,
               "vow map: unknown option '--rat'; did you mean '--rate'? See "
               "vow map --help\n");
    check_said("--ouptut=group", 2,
               "vow map: unknown option '--ouptut'; did you mean '--output'? "
               "See vow map --help\n");
    check_said("--res", 2,
               "vow map: unknown option '--res'; did you mean '--results'? See "
               "vow map --help\n");
    check_said("-rate 5", 2,
               "vow map: unknown option '-rate'; did you mean '--rate'? See "
               "vow map --help\n");
    check_said("-rate=5", 2,
               "vow map: unknown option '-rate'; did you mean '--rate'? See "
               "vow map --help\n");
    check_said("-reslts d", 2,
               "vow map: unknown option '-reslts'; did you mean '--results'? "
               "See vow map --help\n");
    check_said("--hlep", 2,
               "vow map: unknown option '--hlep'; did you mean '--help'? See "
               "vow map --help\n");
    check_said("--j 8", 2,
               "vow map: unknown option '--j'; did you mean '-j'? See vow map "
               "--help\n");
    check_said("-K", 2,
               "vow map: unknown option '-K'; did you mean '-k'? See vow map "
               "--help\n");
    check_said("-kJ8", 2,
               "vow map: unknown option '-J'; did you mean '-j'? See vow map "
               "--help\n");
}

/* -keep would otherwise be -k and then an unknown e. */
TEST(options, know_a_long_name_with_one_dash_also_if_its_letters_exist)
{
    check_said("-keep", 2,
               "vow map: unknown option '-keep'; did you mean '--keep'? See "
               "vow map --help\n");
    check_said("-jobs 5", 2,
               "vow map: unknown option '-jobs'; did you mean '--jobs'? See "
               "vow map --help\n");
}

TEST(options, do_not_guess_wildly)
{
    check_said("--xyzzy", 2,
               "vow map: unknown option '--xyzzy'; see vow map --help\n");
    check_said("-z", 2, "vow map: unknown option '-z'; see vow map --help\n");
    check_said("-kz", 2, "vow map: unknown option '-z'; see vow map --help\n");
    check_said("---", 2, "vow map: unknown option '---'; see vow map --help\n");
    check_said("--=5", 2,
               "vow map: unknown option '--=5'; see vow map --help\n");
    check_said("-=", 2, "vow map: unknown option '-='; see vow map --help\n");
    check_said("-\xc3\xa9", 2,
               "vow map: unknown option '-\xc3\xa9'; see vow map --help\n");
}

TEST(options, say_that_a_value_lacks_or_is_unwanted)
{
    check_said("--rate", 2, "vow map: --rate needs a value: --rate N/U\n");
    check_said("-kj", 2, "vow map: -j needs a value: -j N|N%|Nx\n");
    check_said("--keep=yes", 2,
               "vow map: --keep=yes: it takes no value; write --keep alone\n");
    check_said("--help=all", 2,
               "vow map: --help=all: it takes no value; write --help alone\n");
}

static void refuse_next(void *arg)
{
    struct line *l = arg;
    struct options o = options_of(l->verb, l->argc, l->argv);
    options_next(&o);
    options_refuse(&o, "no, but yes would be right");
}

TEST(options, refuse_a_value_as_it_was_written)
{
    char said[ROOM];
    struct line l = line_of("--rate=50");
    CHECK_INT_EQ(run_in_child(refuse_next, &l, said, ROOM), 2);
    CHECK_STR_EQ(said,
                 "vow map: invalid --rate 50: no, but yes would be right\n");
    l = line_of("-j");
    l.argv[l.argc++] = "";
    CHECK_INT_EQ(run_in_child(refuse_next, &l, said, ROOM), 2);
    CHECK_STR_EQ(said, "vow map: invalid -j '': no, but yes would be right\n");
    l = line_of("-k");
    CHECK_INT_EQ(run_in_child(refuse_next, &l, said, ROOM), 2);
    CHECK_STR_EQ(said, "vow map: invalid -k: no, but yes would be right\n");
}

TEST(options, use_the_exit_code_of_the_verb)
{
    char said[ROOM];
    struct line l = line_of("--nothing");
    l.verb = &run_verb;
    CHECK_INT_EQ(run_in_child(read_all, &l, said, ROOM), 125);
    CHECK_STR_EQ(said,
                 "vow run: unknown option '--nothing'; see vow run --help\n");
}

TEST(options, print_the_help_where_it_is_asked_for)
{
    char said[ROOM];
    struct line l = line_of("-k -h");
    CHECK_INT_EQ(run_in_child(read_all, &l, said, ROOM), 0);
    CHECK(strncmp(said, "Usage: vow map ", 15) == 0);
    l = line_of("--help");
    l.verb = &run_verb;
    CHECK_INT_EQ(run_in_child(read_all, &l, said, ROOM), 0);
    CHECK_STR_EQ(said, "Usage: vow run [--] COMMAND\n\n"
                       "run one COMMAND, 'as is'\n\n"
                       "  -h, --help  show this help\n");
}

static void help_into_a_full_disk(void *arg)
{
    (void)arg;
    if (freopen("/dev/full", "w", stdout) == NULL)
        _exit(98);
    struct line l = line_of("--help");
    read_all(&l);
}

TEST(options, say_that_the_help_could_not_be_written)
{
    char said[ROOM];
    CHECK_INT_EQ(run_in_child(help_into_a_full_disk, NULL, said, ROOM), 125);
    CHECK_STR_EQ(said, "vow: cannot write the help: No space left on device\n");
}

TEST(options, lay_the_help_out_in_columns)
{
    static const char want[] =
        "Usage: vow map [OPTION...] COMMAND [ARG...] [::: INPUT...]\n"
        "\n"
        "run COMMAND once per input\n"
        "\n"
        "Input:\n"
        "  -a, --arg-file FILE  read items from FILE\n"
        "  -0                   items end with NUL\n"
        "\n"
        "Limits:\n"
        "  -j, --jobs N|N%|Nx   so many at once: a number, a share or a "
        "multiple of the\n"
        "                       processors, of which there may be many "
        "(default: 1x)\n"
        "      --rate N/U       start N per U, it's [exact]: 5/s\n"
        "\n"
        "Output:\n"
        "      --output HOW     when to show output\n"
        "  -k, --keep           keep the order\n"
        "      --results DIR    write files\n"
        "      --shell PATH     another shell\n"
        "      --color[=WHEN]   colours\n"
        "      --a-name-that-is-long VALUE\n"
        "                       has its own line\n"
        "\n"
        "  -h, --help           show this help\n"
        "\n"
        "Examples:\n"
        "\n"
        "    vow map -j8 gzip ::: *.log\n"
        "\n"
        "A paragraph of one long line that must be broken somewhere before "
        "the eightieth\n"
        "column is reached.\n";
    char got[ROOM] = "";
    FILE *out = fmemopen(got, sizeof(got), "w");
    options_help(out, &map_verb);
    fclose(out);
    CHECK_STR_EQ(got, want);
}

TEST(options, list_all_verbs)
{
    static const char want[] =
        "Usage: vow VERB [OPTION...] ...\n"
        "\n"
        "Verbs:\n"
        "  map         run COMMAND once per input\n"
        "  run         run one COMMAND, 'as is'\n"
        "  held        hold a name\n"
        "  seen        see names\n"
        "  bare        take nothing\n"
        "  completion  print a completion script: bash, zsh or fish\n"
        "  help        show this, or the help of a verb\n"
        "\n"
        "vow VERB --help shows what a verb does, and its options;\n"
        "vow --version tells the version.\n";
    char got[ROOM] = "";
    FILE *out = fmemopen(got, sizeof(got), "w");
    options_help_all(out);
    fclose(out);
    CHECK_STR_EQ(got, want);
}

TEST(options, find_the_nearest_word)
{
    static const char *const words[] = {"map", "run", "completion", NULL};
    static const char *const none[] = {NULL};
    static char longest[100000];
    CHECK_STR_EQ(options_nearest("map", words), "map");
    CHECK_STR_EQ(options_nearest("mpa", words), "map");
    CHECK_STR_EQ(options_nearest("mapx", words), "map");
    CHECK_STR_EQ(options_nearest("ma", words), "map");
    CHECK_STR_EQ(options_nearest("MAP", words), "map");
    CHECK_STR_EQ(options_nearest("rum", words), "run");
    CHECK_STR_EQ(options_nearest("comp", words), "completion");
    CHECK_STR_EQ(options_nearest("compeltoin", words), "completion");
    CHECK(options_nearest("parallel", words) == NULL);
    CHECK(options_nearest("x", words) == NULL);
    CHECK(options_nearest("", words) == NULL);
    CHECK(options_nearest("map", none) == NULL);
    memset(longest, 'm', sizeof(longest) - 1);
    CHECK(options_nearest(longest, words) == NULL);
}

TEST(completion, is_for_three_shells)
{
    CHECK(!options_completion(stdout, "tcsh"));
    CHECK(!options_completion(stdout, ""));
}

TEST(completion, of_bash_offers_verbs_and_options)
{
    check_completed("vow ''",
                    "--help --version bare completion held help map run seen");
    check_completed("vow m", "map");
    check_completed("vow map --",
                    "--a-name-that-is-long --arg-file --color --help --jobs "
                    "--keep --output --rate --results --shell");
    check_completed("vow map -k --ra", "--rate");
    check_completed("vow map -j 8 --ra", "--rate");
    check_completed("vow map -kP 8 --ra", "--rate");
    check_completed("vow map -kP8 --ra", "--rate");
    check_completed("vow run --", "--help");
    check_completed("vow help r", "run");
    check_completed("vow completion ''", "bash fish zsh");
}

TEST(completion, of_bash_offers_values)
{
    check_completed("vow map --output ''", "group line live none");
    check_completed("vow map --output l", "line live");
    check_completed("vow map --output = l", "line live");
    check_completed("vow map --output =", "group line live none");
    check_completed("vow map --color = al", "always");
    check_completed("vow map --rate ''", "");
    check_completed("vow map -P ''", "");
    check_completed("vow map --arg-file a", "a file,apart");
    check_completed("vow map -a b", "bin");
    check_completed("vow map --arg-file = ap", "apart");
    check_completed("vow map --results ''", "bin");
    check_completed("vow map --shell mkfif", "mkfifo");
}

TEST(completion, of_bash_offers_commands_and_files_behind_the_options)
{
    check_completed("vow map mkfif", "mkfifo");
    check_completed("vow map --rate 5/s mkfif", "mkfifo");
    check_completed("vow map -k -- mkfif", "mkfifo");
    check_completed("vow map --color mkfif", "mkfifo");
    check_completed("vow run mkfif", "mkfifo");
    check_completed("vow map bin/to", "bin/tool");
    check_completed("vow map mkfifo --ra", "");
    check_completed("vow map mkfifo ap", "apart");
    check_completed("vow map mkfifo -j ap", "apart");
    check_completed("vow map mkfifo ::: a", "a file,apart");
}

TEST(completion, of_bash_offers_names_and_programs_only_behind_the_dashes)
{
    check_completed("vow seen ''", "--help -h alpha seen--");
    check_completed("vow seen al", "alpha");
    check_completed("vow seen mkfif", "");
    check_completed("vow seen ap", "");
    check_completed("vow seen alpha ''", "--help -h");
    check_completed("vow seen --", "--help");
    check_completed("vow held al", "alpha");
    check_completed("vow held held", "held--");
    check_completed("vow held --store x: held", "held---store-x:");
    check_completed("vow held --store = x held", "held---store=x-");
    check_completed("vow held --keep mkfif", "");
    check_completed("vow held alpha mkfif", "");
    check_completed("vow held alpha ''", "-- --help --keep --store -h");
    check_completed("vow held alpha --k", "--keep");
    check_completed("vow held alpha -- mkfif", "mkfifo");
    check_completed("vow held --keep alpha -- mkfifo ap", "apart");
    check_completed("vow held -- mkfif", "mkfifo");
    check_completed("vow bare ''", "--help -h");
    check_completed("vow bare mkfif", "");
}

TEST(completion, of_zsh_is_a_script)
{
    check_syntax("zsh", "/usr/bin/zsh");
}

TEST(completion, of_fish_is_a_script)
{
    check_syntax("fish", "/usr/bin/fish");
}

static struct line line_of(const char *s)
{
    static char words[1024];
    struct line l = {.verb = &map_verb, .argc = 1, .argv = {"map"}};
    snprintf(words, sizeof(words), "%s", s);
    for (char *w = strtok(words, " "); w != NULL; w = strtok(NULL, " "))
        l.argv[l.argc++] = w;
    return l;
}

/* "ID=VALUE ID|REST" */
static void check_read(const char *s, const char *want)
{
    struct line l = line_of(s);
    struct options o = options_of(l.verb, l.argc, l.argv);
    struct text got = {0};
    for (int id; (id = options_next(&o)) > 0;)
        text_addf(&got, "%s%d%s%s", got.n > 0 ? " " : "", id,
                  o.value != NULL ? "=" : "", o.value != NULL ? o.value : "");
    text_add_str(&got, "|");
    for (int i = o.at; i < l.argc; i++)
        text_addf(&got, "%s%s", i > o.at ? " " : "", l.argv[i]);
    CHECK_STR_EQ(got.at, want);
    text_free(&got);
}

static void check_said(const char *s, int code, const char *want)
{
    char said[ROOM];
    struct line l = line_of(s);
    CHECK_INT_EQ(run_in_child(read_all, &l, said, ROOM), code);
    CHECK_STR_EQ(said, want);
}

static void read_all(void *arg)
{
    struct line *l = arg;
    struct options o = options_of(l->verb, l->argc, l->argv);
    while (options_next(&o) > 0)
        ;
}

static void run_script(void *arg)
{
    char **argv = arg;
    execv(argv[0], argv);
    _exit(97);
}

/* In a folder with "a file", apart and bin/tool. Words are as in COMP_WORDS,
 * where bash has split at "="; the last is being completed. Candidates are
 * told sorted, by blanks, or by commas if they have blanks. */
static void check_completed(const char *bash_words, const char *want)
{
    static const char test[] =
        "set -e; cd \"$1\"; mkdir bin; touch 'a file' apart bin/tool\n"
        "source ./script\n"
        "vow() { [[ $1 != status ]] || printf '%s\\n' alpha \"$3-$4-$5\"; }\n"
        "eval \"COMP_WORDS=($2)\"; COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
        "COMP_LINE=${COMP_WORDS[*]}; COMP_LINE=${COMP_LINE// = /=}\n"
        "COMP_LINE=${COMP_LINE/% =/=}\n"
        "set +e; _vow; IFS=$'\\n'; all=${COMPREPLY[*]}; sep=' '\n"
        "[[ $all != *' '* ]] || sep=,\n"
        "echo -n \"$all\" | LC_ALL=C sort -u | paste -sd \"$sep\"\n"
        "rm -rf \"$1\"\n";
    char got[ROOM];
    char line[ROOM];
    char *folder = script_of("bash");
    const char *argv[] = {"/bin/bash", "-c",       test, "test",
                          folder,      bash_words, NULL};
    CHECK_INT_EQ(run_in_child(run_script, argv, got, ROOM), 0);
    snprintf(line, sizeof(line), "%s\n", want);
    CHECK_STR_EQ(got, line);
    free(folder);
}

static void check_syntax(const char *shell, const char *path)
{
    char got[ROOM];
    if (access(path, X_OK) != 0)
        SKIP("the shell is not installed");
    char *folder = script_of(shell);
    struct text script = {0};
    text_addf(&script, "%s/script", folder);
    const char *argv[] = {path, "-n", script.at, NULL};
    CHECK_INT_EQ(run_in_child(run_script, argv, got, ROOM), 0);
    CHECK_STR_EQ(got, "");
    CHECK_INT_EQ(unlink(script.at), 0);
    CHECK_INT_EQ(rmdir(folder), 0);
    text_free(&script);
    free(folder);
}

/* A new folder with the file "script". */
static char *script_of(const char *shell)
{
    struct text path = {0};
    text_add_str(&path, "/tmp/vow-test-XXXXXX");
    CHECK(mkdtemp(path.at) != NULL);
    char *folder = mem_copy(path.at, path.n);
    text_add_str(&path, "/script");
    FILE *out = fopen(path.at, "w");
    CHECK(out != NULL);
    CHECK(options_completion(out, shell));
    CHECK_INT_EQ(fclose(out), 0);
    text_free(&path);
    return folder;
}
