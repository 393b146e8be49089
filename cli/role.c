/* SPDX-License-Identifier: MIT */
/* role.c - see role.h. */
#include "role.h"
#include "replay.h"
#include "say.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static const char *role_word(uint32_t role);
static void role_add_json(struct text *t, const char *step,
                          const vow_share_info *info);

const char *role_us(void)
{
    static char us[VOW_RUNNER_MAX];
    char host[VOW_RUNNER_MAX - 16] = "";
    if (us[0] == '\0') {
        (void)gethostname(host, sizeof(host) - 1);
        (void)snprintf(us, sizeof(us), "%s:%d", host, getpid());
    }
    return us;
}

void role_tell(const struct shared *s, const char *label, const char *step,
               const vow_share_info *info)
{
    struct text t = {0};
    if (s->verbose) {
        text_addf(&t, "%s: %s", label,
                  info->role == VOW_ROLE_NONE ? "not run"
                                              : role_word(info->role));
        if (info->runner[0] != '\0')
            text_addf(&t, " (%s)", info->runner);
        if (info->fence != 0)
            text_addf(&t, ", fence %llu", (unsigned long long)info->fence);
        say("%s", t.at);
        text_clear(&t);
    }
    if (s->role_fd >= 0) {
        role_add_json(&t, step, info);
        int error = write_whole(s->role_fd, t.at, t.n);
        if (error != 0)
            say("--role-fd %d: %s", s->role_fd, strerror(error));
    }
    text_free(&t);
}

static void role_add_json(struct text *t, const char *step,
                          const vow_share_info *info)
{
    text_addf(t, "{\"role\":\"%s\"", role_word(info->role));
    if (step != NULL) {
        text_add_str(t, ",\"step\":");
        text_add_json(t, span_of(step));
    }
    text_addf(t,
              ",\"fence\":%llu,\"runner\":", (unsigned long long)info->fence);
    text_add_json(t, span_of(info->runner));
    text_add_str(t, "}\n");
}

static const char *role_word(uint32_t role)
{
    static const char *const words[] = {"none",  "ran",      "joined", "cached",
                                        "stale", "takeover", "alone"};
    return role < sizeof(words) / sizeof(words[0]) ? words[role] : "none";
}
