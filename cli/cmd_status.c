/* SPDX-License-Identifier: MIT */
/* cmd_status.c - vow status: running names, waiters and shared limits.
 *
 * HOW   Two reads of the store, for names and for pools; the store is not
 *       changed. With NAME, only entries that match the word: a name, a pool
 *       and the keys of the pool, a lock.
 */
#include "cmd.h"
#include "listing.h"
#include "manage.h"
#include "say.h"
#include "table.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ID_JSON = 1, ID_NAMES };
enum { OFFER_S = 1 /* seconds; a completion does not wait longer */ };

static const struct option_def options[] = {
    {ID_JSON, '\0', "json", NULL, "one line of JSON per entry", "Show", NULL},
    {ID_NAMES, '\0', "names", "VERB", NULL, NULL, NULL}, /* for completion */
    STORE_ROW,
    {.id = 0}};

const struct verb_def status_verb = {
    .name = "status",
    .usage = "[OPTION...] [NAME]",
    .about = "show running names, waiters and shared limits",
    .story =
        "Shows names of vow share and vow pipe, then pools, locks and slots.\n"
        "With NAME, shows only entries of that name; the exit code is 66 if\n"
        "there are none.\n"
        "\n"
        "  vow status\n"
        "  vow status nightly\n"
        "  vow status --json | jq -r 'select(.state == \"running\").runner'\n",
    .operands = "NAME",
    .options = options,
    .run = cmd_status,
    .usage_code = EXIT_BROKEN};

static size_t pick_names(const vow_records *all, const char *word,
                         vow_record *ret_picked);
static size_t pick_pools(const vow_pools *all, const char *word,
                         vow_pool_info *ret_picked);
static bool pool_matches_word(const vow_pool_info *p, const char *word);
static void status_show(const struct manage *m, const vow_records *names,
                        const vow_pools *pools, bool json);
static bool can_read_for_completion(const struct store_opts *s);
static void offer_names(const struct manage *m, const char *verb,
                        const vow_records *names, const vow_pools *pools);
static bool is_for_verb(const vow_record *r, const char *verb);
static void offer_name(struct text *out, const char *label);
static const char *lock_name_in(const char *label);

int cmd_status(int argc, char **argv)
{
    bool json = false;
    const char *offer_to = NULL;
    int id;
    struct manage m = manage_of(&status_verb, argc, argv);
    while ((id = manage_option(&m)) > 0) {
        json = json || id == ID_JSON;
        offer_to = id == ID_NAMES ? m.options.value : offer_to;
    }
    if (offer_to != NULL && !can_read_for_completion(&m.store))
        return 0;
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
    if (offer_to != NULL)
        offer_names(&m, offer_to, names, pools);
    else
        status_show(&m, &(vow_records){.n = n, .at = some},
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
            (word == NULL || pool_matches_word(&all->at[i], word)))
            ret_picked[n++] = all->at[i];
    return n;
}

/* Returns whether the word stands for the pool: "api" also matches "api:KEY",
 * "lock:api" and "slots:api". */
static bool pool_matches_word(const vow_pool_info *p, const char *word)
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

static void status_show(const struct manage *m, const vow_records *names,
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

/* ---- for completion ------------------------------------------------------ */

/* Returns whether the store can be read for a completion: no store is made.
 * Limits the time of the program, because the user waits after a key press. */
static bool can_read_for_completion(const struct store_opts *s)
{
    char *url = store_address(s);
    bool there = strncmp(url, "file:", 5) != 0 || access(url + 5, F_OK) == 0;
    free(url);
    (void)alarm(OFFER_S);
    return there;
}

/* Prints a line for each name that the verb can be given. */
static void offer_names(const struct manage *m, const char *verb,
                        const vow_records *names, const vow_pools *pools)
{
    struct text out = {0};
    bool all = strcmp(verb, "status") == 0;
    bool locks = all || strcmp(verb, "lock") == 0;
    bool limits = all || strcmp(verb, "limit") == 0;
    text_add(&out, "", 0);
    for (size_t i = 0; i < names->n; i++) {
        const char *label = names->at[i].label;
        vow_name name = store_name_of(label);
        if (!vow_name_equal(&name, &names->at[i].name))
            continue; /* the label is not the NAME of the user */
        if (locks && lock_name_in(label) != NULL)
            offer_name(&out, lock_name_in(label));
        else if (is_for_verb(&names->at[i], verb))
            offer_name(&out, label);
    }
    for (size_t i = 0; i < pools->n; i++) {
        const char *label = pools->at[i].label;
        if (lock_name_in(label) != NULL ? locks : limits)
            offer_name(&out, lock_name_in(label) != NULL ? lock_name_in(label)
                                                         : label);
    }
    manage_print(m, &out);
    text_free(&out);
}

static bool is_for_verb(const vow_record *r, const char *verb)
{
    if (strcmp(verb, "result") == 0)
        return r->status == VOW_STATUS_SETTLED;
    if (strcmp(verb, "forget") == 0)
        return r->status == VOW_STATUS_SETTLED || r->status == VOW_STATUS_DOUBT;
    if (strcmp(verb, "cancel") == 0)
        return r->status == VOW_STATUS_WAITING;
    if (strcmp(verb, "resolve") == 0)
        return r->status == VOW_STATUS_DOUBT;
    return strcmp(verb, "status") == 0 || strcmp(verb, "share") == 0;
}

/* Offers a name for a command line. Any user of the store chooses names, so a
 * name with characters that are special to a shell is not offered. */
static void offer_name(struct text *out, const char *label)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/:@%+-,";
    if (label[0] != '\0' && label[0] != '-' &&
        label[strspn(label, plain)] == '\0')
        text_addf(out, "%s\n", label);
}

/* Returns the name in "lock:NAME" and "slots:NAME"; NULL for other labels. */
static const char *lock_name_in(const char *label)
{
    if (strncmp(label, LOCK_LABEL, strlen(LOCK_LABEL)) == 0)
        return label + strlen(LOCK_LABEL);
    if (strncmp(label, SLOTS_LABEL, strlen(SLOTS_LABEL)) == 0)
        return label + strlen(SLOTS_LABEL);
    return NULL;
}
