/* SPDX-License-Identifier: MIT */
/* shell_kit.h - running scripts with hostile values by real shells.
 *
 * Scripts print what they got. They are run in an empty folder and must leave
 * it empty: the values try hard to make a file PWNED.
 */
#ifndef TEST_SHELL_KIT_H
#define TEST_SHELL_KIT_H

#include "harness.h"
#include "template.h"

#include <dirent.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

enum { FIELDS = 12 };

static const char *const values[] = {
    "plain",
    "it's \"both\"",
    "'",
    "\"",
    "$(touch PWNED)",
    "`touch PWNED`",
    "; touch PWNED",
    "\" ; touch PWNED ; \"",
    "'; touch PWNED; '",
    "'\"; touch PWNED; \"'",
    ")\"; touch PWNED; $(\"",
    "&& touch PWNED || touch PWNED & touch PWNED |touch PWNED",
    "> PWNED",
    "a\ntouch PWNED\nb",
    "new\n",
    "\n\n",
    "-n",
    "-e \\c",
    "--help",
    "* ?? [a-z]* /*",
    "back\\",
    "\\",
    "\\\\0\\c\\n",
    "",
    " a  b\t\tc ",
    "\xff\xfe\xc3(\xe2\x82",
    "\x81\x82\x83\x84\x85\x86\x87\x88",
    "\x01\x02\x7f\x1b[31m\r",
    "{}",
    "{1} {.} {#} {{}}",
    "$1 $@ \"$*\" ${2}",
    "${IFS}${x:=$(touch PWNED)}",
    "b[$(touch PWNED)]",
    "!history !!",
    "%s %d %n\\n",
    "~ ~root",
    "#comment",
    "a=b",
    "esac;; *) touch PWNED;; esac",
    "E\ntouch PWNED",
    "a.b/c.d/e.f",
};

static char folder[] = "/tmp/vow-matrix-XXXXXX";
static char shell_path[64];

/* `name` is in PATH; busybox is a shell by the name it is called. */
static inline void enter_folder(const char *name)
{
    char which[64];
    snprintf(which, sizeof(which), "command -v %s >/dev/null", name);
    if (system(which) != 0)
        SKIP("the shell is not installed");
    CHECK(mkdtemp(folder) != NULL);
    CHECK_INT_EQ(chdir(folder), 0);
    snprintf(shell_path, sizeof(shell_path), "%s", name);
    if (strcmp(name, "busybox") == 0) {
        snprintf(shell_path, sizeof(shell_path), "%s/sh", folder);
        CHECK_INT_EQ(symlink("/bin/busybox", shell_path), 0);
    }
    CHECK_INT_EQ(mkdir("empty", 0700), 0);
    CHECK_INT_EQ(chdir("empty"), 0);
}

static inline void leave_folder(void)
{
    CHECK_INT_EQ(chdir(folder), 0);
    if (shell_path[0] == '/')
        CHECK_INT_EQ(unlink(shell_path), 0);
    CHECK_INT_EQ(rmdir("empty"), 0); /* and so it was */
    CHECK_INT_EQ(rmdir(folder), 0);
}

/* Removes the files that scripts were allowed to make. */
static inline void clear_folder(void)
{
    CHECK_INT_EQ(chdir(folder), 0);
    CHECK_INT_EQ(system("chmod -R u+rwx empty && rm -rf empty"), 0);
    CHECK_INT_EQ(mkdir("empty", 0700), 0);
    CHECK_INT_EQ(chdir("empty"), 0);
}

static inline bool is_folder_empty(void)
{
    size_t n = 0;
    DIR *d = opendir(".");
    CHECK(d != NULL);
    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n == 2;
}

/* Returns the exit status. */
static inline int run(char *const *argv, struct text *out)
{
    static char *env[] = {"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", "HOME=/",
                          NULL};
    posix_spawn_file_actions_t files;
    char block[65536];
    int ends[2];
    int status = 0;
    pid_t pid = 0;
    CHECK_INT_EQ(pipe(ends), 0);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&files, ends[0]);
    posix_spawn_file_actions_addclose(&files, ends[1]);
    CHECK_INT_EQ(posix_spawnp(&pid, argv[0], &files, NULL, argv, env), 0);
    posix_spawn_file_actions_destroy(&files);
    close(ends[1]);
    text_clear(out);
    for (ssize_t n; (n = read(ends[0], block, sizeof(block))) > 0;)
        text_add(out, block, (size_t)n);
    close(ends[0]);
    CHECK_INT_EQ(waitpid(pid, &status, 0), pid);
    return status;
}

static inline struct template *make(const char *script)
{
    char *words[] = {(char *)(uintptr_t)script};
    struct template_opts o = {.shell = shell_path};
    char *error = NULL;
    struct template *t = template_new(words, 1, &o, &error);
    if (t == NULL)
        FAIL("%s: %s", script, error);
    CHECK_STR_EQ(template_program(t), shell_path);
    return t;
}

static inline void check_value(struct template *t, const char *script,
                               struct span value, struct span want)
{
    static struct command c;
    static struct text out;
    struct span fields[FIELDS];
    struct fields f = {.items = &value, .n_items = 1, .seq = 7, .slot = 3};
    for (size_t i = 0; i < FIELDS; i++)
        fields[i] = span_of(i == 9 ? "f10" : "other");
    fields[0] = fields[10] = value;
    f.fields = fields;
    f.n_fields = FIELDS;
    (void)template_expand(t, &f, &c);
    int status = run(c.argv, &out);
    if (!is_folder_empty())
        FAIL("%s with %.200s made a file", script, c.argv[4]);
    if (status != 0)
        FAIL("%s with %.200s ended with %d; it was run as %s", script,
             c.argv[4], status, c.argv[2]);
    if (out.n != want.n || memcmp(out.at, want.at, want.n) != 0)
        FAIL("%s with %.200s printed %.200s; it was run as %s", script,
             c.argv[4], out.n > 0 ? out.at : "nothing", c.argv[2]);
}

#endif
