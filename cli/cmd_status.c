/* SPDX-License-Identifier: MIT */
/* cmd_status.c - vow status: what runs where, who waits, which limits hold.
 *
 * HOW   Two looks at the store, one for names and one for pools; nothing is
 *       changed by looking. With NAME only what that word can stand for: named
 *       work, a pool and those of its keys, a lock.
 */
#include "cmd.h"
#include "listing.h"
#include "manage.h"
#include "say.h"
#include "table.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ID_JSON = 1 };

static const struct option_def options[] = {
    {ID_JSON, '\0', "json", NULL, "one line of JSON for each", "Show", NULL},
    STORE_ROW,
    {.id = 0}};

const struct verb_def status_verb = {
    .name = "status",
    .usage = "[OPTION...] [NAME]",
    .about = "show what runs where, who waits, and shared limits",
    .story =
        "Names of vow share and vow pipe, then pools, locks and slots. With\n"
        "NAME only what has that name; the exit code is 66 if nothing has.\n"
        "\n"
        "  vow status\n"
        "  vow status nightly\n"
        "  vow status --json | jq -r 'select(.state == \"running\").runner'\n",
    .options = options,
    .run = cmd_status,
    .usage_code = EXIT_BROKEN};

static size_t pick_names(const vow_records *all, const char *word,
                         vow_record *ret_picked);
static size_t pick_pools(const vow_pools *all, const char *word,
                         vow_pool_info *ret_picked);
static bool is_pool(const vow_pool_info *p, const char *word);
static void show(const struct manage *m, const vow_records *names,
                 const vow_pools *pools, bool json);

int cmd_status(int argc, char **argv)
{
    bool json = false;
    struct manage m = manage_of(&status_verb, argc, argv);
    while (manage_option(&m) > 0)
        json = true;
    manage_open(&m);
    vow_future *f = vow_authority_list(m.authority);
    vow_future *g = vow_authority_pools(m.authority);
    (void)manage_wait(&m, f);
    (void)manage_wait(&m, g);
    const vow_records *names = vow_as_ptr(vow_get(f));
    const vow_pools *pools = vow_as_ptr(vow_get(g));
    vow_record *some = mem_new((names->n + 1) * sizeof(some[0]));
    vow_pool_info *others = mem_new((pools->n + 1) * sizeof(others[0]));
    size_t n = pick_names(names, m.word, some);
    size_t n_pools = pick_pools(pools, m.word, others);
    show(&m, &(vow_records){.n = n, .at = some},
         &(vow_pools){.n = n_pools, .at = others}, json);
    free(some);
    free(others);
    vow_future_unref(f);
    vow_future_unref(g);
    manage_close(&m);
    return m.word != NULL && n + n_pools == 0 ? EXIT_NOTHING : 0;
}

static size_t pick_names(const vow_records *all, const char *word,
                         vow_record *ret_picked)
{
    size_t n = 0;
    vow_name name = store_name_of(word == NULL ? "" : word), printed;
    if (word == NULL || !vow_name_parse(word, &printed))
        printed = name;
    for (size_t i = 0; i < all->n; i++)
        if (word == NULL || vow_name_equal(&all->at[i].name, &name) ||
            vow_name_equal(&all->at[i].name, &printed) ||
            strcmp(all->at[i].label, word) == 0)
            ret_picked[n++] = all->at[i];
    return n;
}

static size_t pick_pools(const vow_pools *all, const char *word,
                         vow_pool_info *ret_picked)
{
    size_t n = 0;
    for (size_t i = 0; i < all->n; i++)
        if (!listing_is_idle_lock(&all->at[i]) &&
            (word == NULL || is_pool(&all->at[i], word)))
            ret_picked[n++] = all->at[i];
    return n;
}

/* "api" is also "api:KEY", "lock:api" and "slots:api". */
static bool is_pool(const vow_pool_info *p, const char *word)
{
    char printed[VOW_NAME_TEXT];
    static const char *const kinds[] = {"", LOCK_LABEL, SLOTS_LABEL, NULL};
    size_t n = strlen(word);
    for (size_t i = 0; kinds[i] != NULL; i++) {
        size_t kind = strlen(kinds[i]);
        if (strncmp(p->label, kinds[i], kind) == 0 &&
            strcmp(p->label + kind, word) == 0)
            return true;
    }
    return (strncmp(p->label, word, n) == 0 && p->label[n] == ':') ||
           strcmp(vow_name_text(&p->pool, printed), word) == 0;
}

static void show(const struct manage *m, const vow_records *names,
                 const vow_pools *pools, bool json)
{
    struct text out = {0};
    size_t width = table_window(STDOUT_FILENO);
    text_add(&out, "", 0);
    if (!json)
        listing_names(&out, names, width);
    if (!json && names->n > 0 && pools->n > 0)
        text_add_str(&out, "\n");
    if (!json)
        listing_pools(&out, pools, width);
    for (size_t i = 0; json && i < names->n; i++)
        listing_name_json(&out, &names->at[i]);
    for (size_t i = 0; json && i < pools->n; i++)
        listing_pool_json(&out, &pools->at[i]);
    manage_print(m, &out);
    text_free(&out);
}
