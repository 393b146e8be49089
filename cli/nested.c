/* SPDX-License-Identifier: MIT */
/* nested.c - see nested.h.
 *
 * HOW   A word is PID.START:KIND:HASH:NUMBER. START is the start time of the
 *       vow in /proc. For a name, HASH is the hash of the store, and NUMBER is
 *       the fence, which is unique in the store. For a pool permit, HASH is the
 *       hash of store, pool and key, and NUMBER is the weight.
 */
#include "nested.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VARIABLE "VOW_HELD"
enum { HASH_SHOWN = 20, DEPTH_MAX = 4096 };
enum { STAT_PARENT = 1, STAT_GROUP = 2, STAT_SESSION = 3, STAT_START = 19 };

/* A process, from /proc/PID/stat. */
struct process_stat {
    pid_t pid, parent, group, session;
    uint64_t start;
};

/* A word of VOW_HELD. */
struct hold_word {
    pid_t pid;
    uint64_t start;
    char kind; /* 'n': a name, 'p': a pool permit */
    char hash[HASH_SHOWN + 1];
    uint64_t number; /* fence or weight */
};

static void hold_add_hash(struct text *t, const struct nested_hold *h);
static void store_add_identity(struct text *t, const struct store_opts *s);
static bool word_take_number(const char **at, char end, uint64_t *ret_number);
static bool next_hold_word(const char **at, struct hold_word *ret_word);
static bool holder_is_ancestor(const struct hold_word *w);
static bool read_process(pid_t pid, struct process_stat *ret_process);
static uint64_t sum_holds(const struct nested_hold *h, pid_t *ret_holder);

bool nested_is_variable(const char *variable)
{
    return strncmp(variable, VARIABLE "=", sizeof(VARIABLE)) == 0;
}

char *nested_variable(const struct nested_hold *h)
{
    struct text t = {0};
    struct process_stat us;
    const char *outer = getenv(VARIABLE);
    bool holds = h != NULL && read_process(getpid(), &us);
    if (outer != NULL && outer[0] != '\0')
        text_addf(&t, VARIABLE "=%s", outer);
    if (!holds)
        return t.at;
    text_addf(&t, "%s%d.%" PRIu64 ":%c:", t.n > 0 ? " " : VARIABLE "=", us.pid,
              us.start, h->fence > 0 ? 'n' : 'p');
    hold_add_hash(&t, h);
    text_addf(&t, ":%" PRIu64, h->fence > 0 ? h->fence : h->weight);
    return t.at;
}

static void hold_add_hash(struct text *t, const struct nested_hold *h)
{
    struct text store = {0};
    char printed[VOW_NAME_TEXT];
    store_add_identity(&store, h->store);
    const vow_field fields[] = {vow_field_text(store.at),
                                vow_field_text(h->pool == NULL ? "" : h->pool),
                                vow_field_text(h->key == NULL ? "" : h->key)};
    vow_name name = vow_name_make(NULL, fields, h->fence > 0 ? 1 : 3);
    text_add(t, vow_name_text(&name, printed), HASH_SHOWN);
    text_free(&store);
}

/* Adds the identity of the store: for a folder, device and inode, because a
 * folder has many paths. */
static void store_add_identity(struct text *t, const struct store_opts *s)
{
    char *url = store_address(s);
    struct stat st;
    if (strncmp(url, "file:", 5) == 0 && stat(url + 5, &st) == 0)
        text_addf(t, "file %ju %ju", (uintmax_t)st.st_dev,
                  (uintmax_t)st.st_ino);
    else
        text_add_str(t, url);
    free(url);
}

pid_t nested_owner(const struct store_opts *s, uint64_t fence)
{
    pid_t holder = 0;
    if (fence > 0)
        (void)sum_holds(&(struct nested_hold){.store = s, .fence = fence},
                        &holder);
    return holder;
}

uint64_t nested_weight(const struct store_opts *s, const char *pool,
                       const char *key, pid_t *ret_holder)
{
    *ret_holder = 0;
    return sum_holds(
        &(struct nested_hold){.store = s, .pool = pool, .key = key},
        ret_holder);
}

static uint64_t sum_holds(const struct nested_hold *h, pid_t *ret_holder)
{
    const char *at = getenv(VARIABLE);
    struct text hash = {0};
    struct hold_word w;
    uint64_t sum = 0;
    if (at == NULL || at[0] == '\0')
        return 0;
    hold_add_hash(&hash, h);
    while (next_hold_word(&at, &w)) {
        bool same = h->fence > 0 ? w.kind == 'n' && w.number == h->fence
                                 : w.kind == 'p';
        if (!same || strcmp(w.hash, hash.at) != 0 || !holder_is_ancestor(&w))
            continue;
        sum += w.number;
        *ret_holder = w.pid; /* the nearest comes last */
    }
    text_free(&hash);
    return sum;
}

/* Takes a decimal number and, unless `end` is NUL, the character `end` after
 * the number. */
static bool word_take_number(const char **at, char end, uint64_t *ret_number)
{
    char *rest;
    if (!isdigit((unsigned char)**at))
        return false;
    errno = 0;
    *ret_number = strtoull(*at, &rest, 10);
    if (errno != 0 || (end != '\0' && *rest != end))
        return false;
    *at = rest + (end != '\0');
    return true;
}

/* Takes the next word. Returns false at the end, or if the text is no word. */
static bool next_hold_word(const char **at, struct hold_word *ret_word)
{
    const char *s = *at;
    uint64_t pid;
    if (s == NULL || !word_take_number(&s, '.', &pid) ||
        !word_take_number(&s, ':', &ret_word->start) || s[0] == '\0' ||
        s[1] != ':')
        return false;
    ret_word->pid = (pid_t)pid;
    ret_word->kind = s[0];
    s += 2;
    size_t n = strcspn(s, ":");
    if (n == 0 || n > HASH_SHOWN || s[n] != ':')
        return false;
    memcpy(ret_word->hash, s, n);
    ret_word->hash[n] = '\0';
    s += n + 1;
    if (!word_take_number(&s, '\0', &ret_word->number))
        return false;
    s = strchr(s, ' ');
    *at = s == NULL ? NULL : s + 1;
    return true;
}

/* Returns whether the vow of the word is an ancestor, and started the command
 * through which this process descends. The command, the child of vow, is in the
 * session of vow, and leads a process group or is in the group of vow. An
 * orphan that vow has adopted is neither. */
static bool holder_is_ancestor(const struct hold_word *w)
{
    struct process_stat below, above;
    if (!read_process(getpid(), &below))
        return false;
    for (int depth = 0; depth < DEPTH_MAX && below.parent > 0; depth++) {
        if (!read_process(below.parent, &above))
            return false;
        if (above.pid == w->pid)
            return above.start == w->start && below.session == above.session &&
                   (below.group == below.pid || below.group == above.group);
        below = above;
    }
    return false;
}

/* Reads /proc/PID/stat. The name of the program may have blanks and
 * parentheses. */
static bool read_process(pid_t pid, struct process_stat *ret_process)
{
    char path[64], line[1024];
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *f = fopen(path, "re");
    size_t n = f == NULL ? 0 : fread(line, 1, sizeof(line) - 1, f);
    if (f != NULL)
        (void)fclose(f);
    line[n] = '\0';
    const char *rest = strrchr(line, ')');
    uint64_t field[STAT_START + 1] = {0}; /* counted after the name */
    if (rest == NULL || rest[1] != ' ')
        return false;
    for (size_t i = 0; i <= STAT_START; i++) {
        rest = strchr(rest, ' ');
        if (rest == NULL)
            return false;
        field[i] = strtoull(++rest, NULL, 10); /* the state reads as 0 */
    }
    *ret_process = (struct process_stat){.pid = pid,
                                         .parent = (pid_t)field[STAT_PARENT],
                                         .group = (pid_t)field[STAT_GROUP],
                                         .session = (pid_t)field[STAT_SESSION],
                                         .start = field[STAT_START]};
    return true;
}
