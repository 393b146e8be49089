/* SPDX-License-Identifier: MIT */
/* stream_end_test.c - servers that end the connection, or that cannot be
 * connected to, and what is told of them.
 */
#include "stream_rig.h"

#include "store/net/stream_internal.h"

#include <poll.h>
#include <signal.h>

enum { MEGABYTE = 1 << 20 };

/* ---- the server ends it ------------------------------------------------- */

TEST(stream_end, a_server_that_closes_is_named)
{
    struct server s;
    struct client c;
    server_open(&s, talk_bye);
    client_open_to(&c, &s);
    WAIT_UNTIL(&c, c.ended == 1);
    CHECK_INT_EQ(c.code, UV_EOF);
    CHECK_WHY(&c, &s, "127.0.0.1:%u closed the connection");
    CHECK_UINT_EQ(c.n, 3);
    client_send(&c, "dropped", 7);
    CHECK_INT_EQ(vow_loop_turn(c.w->loop), 0);
    client_close(&c);
    server_close(&s);
}

static void talk_reset(struct server *s, int fd)
{
    struct linger hard = {.l_onoff = 1, .l_linger = 0};
    char byte;
    (void)s;
    (void)recv(fd, &byte, 1, 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
}

TEST(stream_end, a_connection_that_is_broken_off_is_told)
{
    struct server s;
    struct client c;
    server_open(&s, talk_reset);
    client_open_to(&c, &s);
    client_send(&c, "x", 1);
    WAIT_UNTIL(&c, c.ended == 1);
    CHECK_INT_EQ(c.code, UV_ECONNRESET);
    CHECK_WHY(&c, &s, "127.0.0.1:%u broke the connection off");
    client_close(&c);
    server_close(&s);
}

/* It closes without having read, as one with too many clients does. */
static void talk_refuse(struct server *s, int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    (void)s;
    (void)poll(&p, 1, -1);
    (void)send(fd, "-ERR too many\r\n", 15, MSG_NOSIGNAL);
}

static void check_last_word(struct server *s)
{
    struct client c;
    size_t n = 4 * (size_t)MEGABYTE;
    char *much = calloc(1, n);
    CHECK(much != NULL);
    client_open_to(&c, s);
    client_send(&c, much, n);
    while (c.ended == 0) {
        client_send(&c, "more", 4); /* also into a socket that is closed */
        client_turn(&c);
    }
    CHECK_UINT_EQ(c.n, 15);
    CHECK_MEM_EQ(c.got, "-ERR too many\r\n", 15);
    CHECK(c.code == UV_EOF || c.code == UV_ECONNRESET);
    free(much);
    client_close(&c);
    server_close(s);
}

TEST(stream_end, the_last_word_of_a_server_is_heard)
{
    struct server s;
    server_open(&s, talk_refuse);
    check_last_word(&s);
}

TEST(stream_end, the_last_word_of_a_local_server_is_heard)
{
    struct server s;
    server_open_local(&s, talk_refuse);
    check_last_word(&s);
}

static void talk_nothing(struct server *s, int fd)
{
    (void)s;
    (void)fd;
}

/* Much, then it is gone; the test looks when it is. */
static void talk_much_and_reset(struct server *s, int fd)
{
    struct linger hard = {.l_onoff = 1, .l_linger = 0};
    int *pipes = s->user;
    ssize_t n = 1;
    char *much = calloc(1, MEGABYTE);
    CHECK(much != NULL && recv(fd, much, 1, 0) == 1);
    for (int64_t sent = 0; n > 0; sent += n) {
        n = send(fd, much, MEGABYTE, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n <= 0)
            CHECK(write(pipes[1], &sent, sizeof(sent)) == sizeof(sent));
    }
    free(much);
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
}

/* As far as it had arrived. */
TEST(stream_end, what_came_before_a_reset_is_read_first)
{
    int pipes[2];
    int64_t sent = 0;
    struct server s;
    struct client c;
    CHECK(pipe(pipes) == 0);
    server_open(&s, talk_much_and_reset);
    s.user = pipes;
    client_open_to(&c, &s);
    WAIT_UNTIL(&c, c.opened == 1);
    client_send(&c, "x", 1);
    world_turn(c.w);
    CHECK(read(pipes[0], &sent, sizeof(sent)) == sizeof(sent));
    server_close(&s); /* and has closed */
    WAIT_UNTIL(&c, c.ended == 1);
    CHECK_INT_EQ(c.code, UV_ECONNRESET);
    CHECK(c.n > 0 && c.n <= (size_t)sent);
    client_close(&c);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
}

/* The default of SIGPIPE is to die. */
TEST(stream_end, writing_to_a_closed_socket_is_no_signal)
{
    struct server s;
    CHECK(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    server_open_local(&s, talk_nothing);
    for (int i = 0; i < 50; i++) {
        struct client c;
        client_open_to(&c, &s);
        WAIT_UNTIL(&c, c.opened == 1);
        for (int j = 0; j < 20 && c.ended == 0; j++) {
            client_send(&c, "x", 1);
            (void)vow_loop_turn(c.w->loop);
        }
        WAIT_UNTIL(&c, c.ended == 1);
        CHECK_INT_EQ(c.code == UV_EOF || c.code == UV_ECONNRESET, 1);
        client_close(&c);
    }
    server_close(&s);
}

/* ---- it cannot be opened ------------------------------------------------ */

TEST(stream_end, a_refusal_is_told)
{
    struct server s = {.fd = -1};
    struct client c;
    server_listen(&s, -1); /* bound, so that nobody else is there */
    client_open_to(&c, &s);
    CHECK_INT_EQ(c.ended, 0);
    world_run(c.w);
    CHECK_INT_EQ(c.ended, 1);
    CHECK_INT_EQ(c.opened, 0);
    CHECK_INT_EQ(c.code, UV_ECONNREFUSED);
    CHECK_WHY(&c, &s, "127.0.0.1:%u refused the connection");
    client_close(&c);
    server_close(&s);
}

TEST(stream_end, an_address_of_the_newer_kind_is_shown_in_brackets)
{
    struct client c;
    client_open(&c, CLIENT_OPTS(.host = "::1", .port = 1));
    world_run(c.w);
    CHECK_INT_EQ(c.ended, 1);
    CHECK(strncmp(c.why, "[::1]:1 ", 8) == 0);
    client_close(&c);
}

static void check_path(const char *path, int code, const char *why)
{
    struct client c;
    client_open(&c, CLIENT_OPTS(.path = path));
    world_run(c.w);
    CHECK_INT_EQ(c.ended, 1);
    CHECK_INT_EQ(c.code, code);
    CHECK_STR_EQ(c.why, why);
    client_close(&c);
}

TEST(stream_end, a_path_without_a_server_is_told)
{
    struct server s = {.fd = -1};
    char want[256];
    char path[160];
    server_listen_local(&s);
    (void)close(s.fd); /* the file stays */
    (void)snprintf(want, sizeof(want), "%s refused the connection", s.path);
    check_path(s.path, UV_ECONNREFUSED, want);
    CHECK(unlink(s.path) == 0);
    (void)snprintf(want, sizeof(want), "%s is not there", s.path);
    check_path(s.path, UV_ENOENT, want);
    folder_close(&s.folder);
    check_path("", VOW_EINVAL, ": the path of a socket has 1 to 107 bytes");
    memset(path, 'p', sizeof(path));
    path[108] = '\0';
    (void)snprintf(want, sizeof(want),
                   "%s: the path of a socket has 1 to 107 bytes", path);
    check_path(path, VOW_EINVAL, want);
    path[107] = '\0'; /* the longest */
    (void)snprintf(want, sizeof(want), "%s is not there", path);
    check_path(path, UV_ENOENT, want);
    check_path("/dev/null/x", UV_ENOTDIR, "/dev/null/x: not a directory");
}

TEST(stream_end, a_local_server_that_is_too_busy_is_told)
{
    struct server s = {.fd = -1};
    struct client c[2];
    char want[256];
    server_listen_local(&s);
    CHECK(listen(s.fd, 0) == 0); /* one may wait */
    client_open_to(&c[0], &s);
    WAIT_UNTIL(&c[0], c[0].opened == 1);
    client_open_to(&c[1], &s);
    WAIT_UNTIL(&c[1], c[1].ended == 1);
    (void)snprintf(want, sizeof(want), "%s has too many connections that wait",
                   s.path);
    CHECK_INT_EQ(c[1].code, UV_EAGAIN);
    CHECK_STR_EQ(c[1].why, want);
    client_close(&c[1]);
    client_close(&c[0]);
    server_close(&s);
}

TEST(stream_end, each_reason_has_its_sentence)
{
    static const struct {
        int code;
        const char *why;
    } all[] = {
        {UV_ETIMEDOUT, "here:1 does not answer any more"},
        {UV_EACCES, "here:1 cannot be connected to: this is not allowed"},
        {UV_EPERM, "here:1 cannot be connected to: this is not allowed"},
        {UV_EHOSTUNREACH, "here:1 cannot be reached: there is no way to it"},
        {UV_ENETUNREACH, "here:1 cannot be reached: there is no way to it"},
        {UV_EPIPE, "here:1 broke the connection off"},
        {UV_EMFILE, "here:1: too many open files"},
        {VOW_ENOMEM, "here:1: not enough memory"},
    };
    static struct vow__stream s = {.state = VOW__STREAM_CONNECTS,
                                   .shown = "here:1"};
    char why[128];
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        vow__stream_explain(&s, all[i].code, why, sizeof(why));
        CHECK_STR_EQ(why, all[i].why);
    }
}
