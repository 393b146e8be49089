/* SPDX-License-Identifier: MIT */
/* main.c - the command `vow`: finds the verb and runs it. */
#include "cmd.h"
#include "options.h"
#include "say.h"
#include "settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vow.h>

enum { DESCRIPTORS = 8 };

static const struct option_def no_options[] = {{.id = 0}};

static const struct verb_def help_verb = {.name = "help",
                                          .usage = "[VERB]",
                                          .about =
                                              "show help for vow or a command",
                                          .options = no_options,
                                          .run = cmd_help,
                                          .usage_code = EXIT_USAGE};

static const struct verb_def completion_verb = {
    .name = "completion",
    .usage = "bash|zsh|fish",
    .about = "print a completion script for a shell",
    .options = no_options,
    .run = cmd_completion,
    .usage_code = EXIT_USAGE};

const struct verb_def *const verbs[] = {
    &map_verb,     &run_verb,    &share_verb,  &lock_verb,       &pipe_verb,
    &status_verb,  &limit_verb,  &result_verb, &forget_verb,     &cancel_verb,
    &resolve_verb, &doctor_verb, &help_verb,   &completion_verb, NULL};

static const struct verb_def *verb_of(const char *name);
static void open_missing_descriptors(void);
static void check_free_descriptors(void);

int main(int argc, char **argv)
{
    open_missing_descriptors();
    if (argc < 2) {
        options_help_all(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        (void)printf("vow %s\n", vow_version());
        return fflush(stdout) == 0 ? 0 : EXIT_BROKEN;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        argv[1] = "help";
    const struct verb_def *verb = verb_of(argv[1]);
    if (verb != &help_verb && verb != &completion_verb)
        check_free_descriptors();
    return verb->run(argc - 1, argv + 1);
}

static const struct verb_def *verb_of(const char *name)
{
    const char *names[sizeof(verbs) / sizeof(verbs[0])] = {NULL};
    for (size_t i = 0; verbs[i] != NULL; i++) {
        names[i] = verbs[i]->name;
        if (strcmp(name, names[i]) == 0)
            return verbs[i];
    }
    const char *near = options_nearest(name, names);
    if (near != NULL)
        die(EXIT_USAGE,
            "there is no verb '%s'; did you mean '%s'? See vow help", name,
            near);
    die(EXIT_USAGE, "there is no verb '%s'. See vow help", name);
}

/* Opens descriptors 0, 1 and 2 if they are closed, so no other file of vow gets
 * these numbers. */
static void open_missing_descriptors(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)open("/dev/null", O_RDONLY); /* a write fails */
}

/* Exits if too few descriptors are free: libuv would abort. */
static void check_free_descriptors(void)
{
    int fds[DESCRIPTORS], n = 0;
    while (n < DESCRIPTORS && (fds[n] = fcntl(0, F_DUPFD_CLOEXEC, 3)) >= 0)
        n++;
    for (int i = 0; i < n; i++)
        (void)close(fds[i]);
    if (n < DESCRIPTORS)
        die(EXIT_BROKEN,
            "too few file descriptors: %d are free, and vow needs at least %d; "
            "raise the limit (ulimit -n)",
            n, DESCRIPTORS);
}

int cmd_help(int argc, char **argv)
{
    struct options o = options_of(&help_verb, argc, argv);
    while (options_next(&o) > 0)
        ;
    if (o.at < argc)
        options_help(stdout, verb_of(argv[o.at]));
    else
        options_help_all(stdout);
    return fflush(stdout) == 0 ? 0 : EXIT_BROKEN;
}

int cmd_completion(int argc, char **argv)
{
    struct options o = options_of(&completion_verb, argc, argv);
    while (options_next(&o) > 0)
        ;
    if (o.at + 1 != argc || !options_completion(stdout, argv[o.at]))
        die(EXIT_USAGE, "vow completion: give one shell: bash, zsh or fish");
    return fflush(stdout) == 0 ? 0 : EXIT_BROKEN;
}
