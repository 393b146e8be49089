/* SPDX-License-Identifier: MIT */
/* cmd_names.c - vow result, vow forget, vow cancel: read or change a name. */
#include "cmd.h"
#include "manage.h"
#include "replay.h"
#include "say.h"

#include <string.h>

static const struct option_def options[] = {STORE_ROW, {.id = 0}};
static const struct option_def result_options[] = {
    STORE_ROW, RESULTS_ROW, {.id = 0}};

const struct verb_def result_verb = {
    .name = "result",
    .usage = "[OPTION...] NAME",
    .about = "print the cached result of a name",
    .story = "Prints the command's stdout and stderr, and exits with its exit\n"
             "code. The exit code is 66 if there is no result.\n",
    .operands = "NAME",
    .options = result_options,
    .run = cmd_result,
    .usage_code = EXIT_BROKEN};

const struct verb_def forget_verb = {
    .name = "forget",
    .usage = "[OPTION...] NAME",
    .about = "delete the result of a name: the next caller runs it",
    .story =
        "The exit code is 0 if the result was deleted or there was none, and\n"
        "75 if the name is running.\n",
    .operands = "NAME",
    .options = options,
    .run = cmd_forget,
    .usage_code = EXIT_BROKEN};

const struct verb_def cancel_verb = {
    .name = "cancel",
    .usage = "[OPTION...] NAME",
    .about = "stop a running name, for all its waiters",
    .story = "The exit code is 66 if the name is not running.\n",
    .operands = "NAME",
    .options = options,
    .run = cmd_cancel,
    .usage_code = EXIT_BROKEN};

static vow_name open_with_name(struct manage *m, const struct verb_def *verb,
                               int argc, char **argv);
static vow_future *refuse_work(vow_lease *lease, void *arg);
static int print_result(const struct manage *m, vow_bytes *recording);

int cmd_result(int argc, char **argv)
{
    struct manage m;
    vow_name name = open_with_name(&m, &result_verb, argc, argv);
    VOW_AUTO(vow_future)
    f = vow_share(
        m.authority, &name, refuse_work, m.loop,
        VOW_SHARE(.flags = VOW_SHARE_PEEK, .store_down = VOW_DOWN_FAIL));
    int code = EXIT_NOTHING;
    if (!store_has_none(vow_loop_run_until(m.loop, f)) &&
        manage_wait(&m, f) == 0)
        code = print_result(&m, vow_as_bytes(vow_get(f)));
    manage_close(&m);
    return code;
}

/* Never called: VOW_SHARE_PEEK only reads the result. */
static vow_future *refuse_work(vow_lease *lease, void *arg)
{
    (void)lease;
    return vow_refused(arg, VOW_ENOENT, NULL);
}

static int print_result(const struct manage *m, vow_bytes *recording)
{
    struct ending end;
    const void *at = "";
    size_t n = 0;
    if (recording != NULL) {
        at = vow_bytes_data(recording);
        n = vow_bytes_size(recording);
    }
    const char *wrong = replay_check(at, n, &end);
    if (wrong != NULL)
        die(EXIT_BROKEN, "vow result: '%s': %s", m->word, wrong);
    int error = replay_write(at, n);
    if (error != 0)
        die(EXIT_BROKEN, "vow result: cannot write the result: %s",
            strerror(error));
    return ending_code(end);
}

int cmd_forget(int argc, char **argv)
{
    struct manage m;
    vow_name name = open_with_name(&m, &forget_verb, argc, argv);
    VOW_AUTO(vow_future) f = vow_authority_forget(m.authority, &name, 0);
    int rc = manage_wait(&m, f);
    if (rc == VOW_EBUSY)
        say("vow forget: '%s' is running; to stop it, use vow cancel", m.word);
    manage_close(&m);
    return rc == VOW_EBUSY ? EXIT_BUSY : 0;
}

int cmd_cancel(int argc, char **argv)
{
    struct manage m;
    vow_name name = open_with_name(&m, &cancel_verb, argc, argv);
    VOW_AUTO(vow_future) f = vow_authority_cancel(m.authority, &name);
    int rc = manage_wait(&m, f);
    manage_close(&m);
    return rc == VOW_ENOENT ? EXIT_NOTHING : 0;
}

static vow_name open_with_name(struct manage *m, const struct verb_def *verb,
                               int argc, char **argv)
{
    *m = manage_of(verb, argc, argv);
    while (manage_option(m) > 0)
        ;
    return manage_open_name(m);
}
