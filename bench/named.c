/* SPDX-License-Identifier: MIT */
/* named.c - the library's own side of `./dev bench named`: runs one case.
 *
 * usage: bench_named CASE. One process per case, as in core.c. The peers in
 * other languages (peers/) do the same work under the same names. What has a
 * peer or a floor in C is measured here in turns with it, so that the disk and
 * the scheduler are the same for both, and gives rows of both.
 */
#include "named.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct bench_case cases[] = {
    {"share-hot", bench_share_hot},
    {"share-one", bench_share_one},
    {"share-many", bench_share_many},
    {"share-kept", bench_share_kept},
    {"name", bench_name},
    {"claim", bench_claim},
    {"records", bench_records},
    {"fair", bench_fair},
    {"wake", bench_wake},
    {"takeover", bench_takeover},
};

int main(int argc, char **argv)
{
    return run_ours(argc, argv, cases, COUNT(cases));
}

/* ---- folders ------------------------------------------------------------- */

static char folder[256];
static pid_t owner;

static void remove_folder(void)
{
    char *const argv[] = {"rm", "-rf", folder, NULL};
    pid_t pid;
    if (getpid() == owner &&
        posix_spawnp(&pid, "rm", NULL, NULL, argv, environ) == 0)
        (void)waitpid(pid, NULL, 0);
}

const char *new_folder(void)
{
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(folder, sizeof(folder), "%s/vow-bench-XXXXXX",
                   tmp == NULL || tmp[0] == '\0' ? "/tmp" : tmp);
    MUST(mkdtemp(folder) != NULL);
    owner = getpid();
    MUST(atexit(remove_folder) == 0);
    return folder;
}

/* ---- authorities --------------------------------------------------------- */

vow_authority *open_authority(vow_loop *loop, const char *in, uint32_t flags,
                              vow_event_fn on_event, void *user)
{
    char url[300];
    (void)snprintf(url, sizeof(url), "file:%s/store", in);
    VOW_AUTO(vow_future)
    f = vow_authority_open(loop, url,
                           VOW_AUTHORITY(.flags = flags, .on_event = on_event,
                                         .on_event_user = user));
    MUST(vow_loop_run_until(loop, f) == 0);
    return vow_authority_ref(vow_as_ptr(vow_get(f)));
}

void close_authority(vow_loop *loop, vow_authority *a)
{
    VOW_AUTO(vow_future) f = vow_authority_close(a);
    MUST(vow_loop_run_until(loop, f) == 0);
    vow_authority_unref(a);
}
