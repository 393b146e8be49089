/* SPDX-License-Identifier: MIT */
/* manage.c - see manage.h. */
#include "manage.h"
#include "say.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct manage manage_of(const struct verb_def *verb, int argc, char **argv)
{
    return (struct manage){.options = options_of(verb, argc, argv),
                           .store = store_opts_of(verb)};
}

int manage_option(struct manage *m)
{
    struct options *o = &m->options;
    for (;;) {
        int id = options_next(o);
        if (id > 0 && !store_option(&m->store, id, o))
            return id;
        if (id > 0)
            continue;
        if (o->at == o->argc)
            return 0;
        if (m->word != NULL)
            die(o->verb->usage_code,
                "vow %s: unexpected argument '%s': use only one name",
                o->verb->name, o->argv[o->at]);
        m->word = o->argv[o->at++];
    }
}

void manage_needs_word(const struct manage *m, const char *missing)
{
    const struct verb_def *verb = m->options.verb;
    if (m->word == NULL || m->word[0] == '\0')
        die(verb->usage_code, "vow %s: %s. See vow %s --help", verb->name,
            missing, verb->name);
}

void manage_open(struct manage *m)
{
    if (vow_loop_new(NULL, &m->loop) < 0)
        die(EXIT_BROKEN, "cannot create the event loop: %s", strerror(errno));
    m->authority = store_open_or_die(m->loop, &m->store);
}

int manage_wait(const struct manage *m, vow_future *f)
{
    int rc = vow_loop_run_until(m->loop, f);
    if (rc < 0 && rc != VOW_ENOENT && rc != VOW_EBUSY)
        die(EXIT_BROKEN, "vow %s: %s", m->options.verb->name,
            rc == VOW_EAGAIN ? "the store does not answer"
                             : vow_error_message(vow_error_of(f)));
    return rc;
}

void manage_print(const struct manage *m, const struct text *t)
{
    if (fwrite(t->at, 1, t->n, stdout) != t->n || fflush(stdout) != 0)
        die(EXIT_BROKEN, "vow %s: cannot write to stdout: %s",
            m->options.verb->name, strerror(errno));
}

void manage_close(struct manage *m)
{
    store_close(m->loop, m->authority);
    (void)vow_loop_close(m->loop);
}
