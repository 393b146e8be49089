/* SPDX-License-Identifier: MIT */
/* redis.c - the floor of the suite `redis`: one socket that blocks, a command
 * in one write, its answer by as few reads as it takes. */
#include "../redis.h"
#include "store/redis/redis_internal.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { ROOM = 1 << 20 };

struct bare {
    int fd;
    size_t at; /* of what was read, where the next answer begins */
    size_t n;
    const char *text; /* the last in an answer */
    char in[ROOM];
    char out[ROOM];
};

static void read_one(struct bare *b);

struct bare *bare_open(const char *path)
{
    struct bare *b = calloc(1, sizeof(*b));
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    MUST(b != NULL);
    (void)snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
    b->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    MUST(b->fd >= 0);
    MUST(connect(b->fd, (const struct sockaddr *)&at, sizeof(at)) == 0);
    return b;
}

void bare_close(struct bare *b)
{
    (void)close(b->fd);
    free(b);
}

/* ---- commands ------------------------------------------------------------ */

void bare_send(struct bare *b, const char *const *words)
{
    size_t count = 0;
    while (words[count] != NULL)
        count++;
    size_t n = (size_t)snprintf(b->out, ROOM, "*%zu\r\n", count);
    for (size_t i = 0; i < count; i++) {
        n += (size_t)snprintf(b->out + n, ROOM - n, "$%zu\r\n%s\r\n",
                              strlen(words[i]), words[i]);
        MUST(n < ROOM);
    }
    MUST(send(b->fd, b->out, n, MSG_NOSIGNAL) == (ssize_t)n);
}

const char *bare_ask(struct bare *b, const char *const *words)
{
    bare_send(b, words);
    return bare_read(b);
}

/* ---- answers ------------------------------------------------------------- */

const char *bare_read(struct bare *b)
{
    if (b->at == b->n) {
        b->at = 0;
        b->n = 0;
    }
    b->text = NULL;
    read_one(b);
    return b->text;
}

static void read_more(struct bare *b)
{
    MUST(b->n < ROOM);
    ssize_t n = recv(b->fd, b->in + b->n, ROOM - b->n, 0);
    MUST(n > 0);
    b->n += (size_t)n;
}

/* Ended by a zero byte instead of its line feed. */
static char *read_line(struct bare *b)
{
    char *end;
    while ((end = memchr(b->in + b->at, '\n', b->n - b->at)) == NULL)
        read_more(b);
    char *line = b->in + b->at;
    *end = '\0';
    b->at = (size_t)(end - b->in) + 1;
    return line;
}

static void read_one(struct bare *b)
{
    char *line = read_line(b);
    long n = strtol(line + 1, NULL, 10);
    MUST(line[0] != '-');
    if (line[0] == '$' && n >= 0) {
        size_t end = b->at + (size_t)n + 2;
        while (b->n < end)
            read_more(b);
        b->in[end - 2] = '\0';
        b->text = b->in + b->at;
        b->at = end;
    } else if (line[0] == '*') {
        for (long i = 0; i < n; i++)
            read_one(b);
    } else if (line[0] == '+') {
        b->text = line + 1;
    }
}

/* ---- what the server knows ----------------------------------------------- */

double number_behind(const char *text, const char *word)
{
    const char *at = strstr(text, word);
    return at == NULL ? 0 : strtod(at + strlen(word), NULL);
}

double bare_scripts(struct bare *b)
{
    const char *stats = ASK(b, "INFO", "commandstats");
    return number_behind(stats, "cmdstat_evalsha:calls=") +
           number_behind(stats, "cmdstat_eval:calls=");
}

double bare_cpu_s(struct bare *b)
{
    const char *cpu = ASK(b, "INFO", "cpu");
    return number_behind(cpu, "used_cpu_user:") +
           number_behind(cpu, "used_cpu_sys:");
}

void bare_load_claim(struct bare *b, char sha[41])
{
    const char *text = vow__redis_scripts[VOW__LUA_CLAIM].text;
    (void)snprintf(sha, 41, "%s", ASK(b, "SCRIPT", "LOAD", text));
}
