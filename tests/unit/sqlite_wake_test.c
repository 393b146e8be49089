/* SPDX-License-Identifier: MIT */
/* sqlite_wake_test.c - wake-ups of the store in a folder: the result in a
 * message, messages that are lost, and messages that do not count. */
#include "sqlite_kit.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum { SENT_MAX = 8192, NOBODY = 65534 };

/* Two instances: `a` owns the name "a", and `b` waits. */
struct pair {
    struct folder folder;
    struct kit a, b;
    vow_claim_request wait; /* by which `b` claims again */
    uint64_t epoch;
};

static void pair_open_at(struct pair *p, const char *path)
{
    vow_claim_request own = kit_ask("a", 1);
    own.label = "label";
    own.runner = "runner";
    kit_open(&p->a, path);
    kit_open(&p->b, path);
    p->epoch = kit_claim_as(&p->a, &own).epoch;
    p->wait = kit_ask("a", 2);
    struct kit_answer answer = kit_claim_as(&p->b, &p->wait);
    CHECK_UINT_EQ(answer.status, VOW_STATUS_WAITING);
    p->wait.waited = answer.waited;
}

static void pair_open(struct pair *p)
{
    folder_open(&p->folder);
    pair_open_at(p, p->folder.path);
}

static void pair_close(struct pair *p)
{
    kit_close(&p->a);
    kit_close(&p->b);
    folder_close(&p->folder);
}

/* `a` settles the name with so many bytes. */
static void pair_settle(struct pair *p, uint64_t ttl_ms, size_t size)
{
    struct kit_answer got;
    VOW_AUTO(vow_bytes) value = NULL;
    CHECK_INT_EQ(vow_bytes_new(p->a.world.loop, NULL, size, &value), 0);
    if (size > 0)
        memset(vow_bytes_data(value), 'v', size);
    vow_commit_request request = {.hold = {.name = vow_name_of("a"),
                                           .token = kit_token(1),
                                           .epoch = p->epoch},
                                  .outcome = VOW_OUTCOME_FAILED,
                                  .ttl_ms = ttl_ms,
                                  .cost_ms = 7,
                                  .value = value};
    p->a.store->ops->commit(p->a.store, &request, kit_on_answer, &got);
    CHECK_UINT_EQ(got.status, VOW_STATUS_OWNED);
}

static void run_ms(struct kit *k, uint64_t ms)
{
    VOW_AUTO(vow_future) pause = vow_delay(k->world.loop, ms);
    CHECK_INT_EQ(vow_loop_run_until(k->world.loop, pause), 0);
}

/* The path of the socket of an instance. */
static void socket_path(const struct pair *p, const struct kit *k, char *path,
                        size_t room)
{
    snprintf(path, room, "%s/sock/%s", p->folder.path,
             vow__file_of(k->store)->hex);
}

/* A socket that sends to an instance. */
static int socket_to(const struct pair *p, const struct kit *k)
{
    char path[600];
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    socket_path(p, k, path, sizeof(path));
    CHECK(fd >= 0);
    CHECK(strlen(path) < sizeof(at.sun_path));
    memcpy(at.sun_path, path, strlen(path));
    CHECK(connect(fd, (const struct sockaddr *)&at, sizeof(at)) == 0);
    return fd;
}

/* A message: kind, name "a", and so many more bytes. */
static ssize_t message_to(int fd, char kind, const void *more, size_t size)
{
    char message[1 + 32 + 256];
    vow_name name = vow_name_of("a");
    CHECK(size <= 256);
    message[0] = kind;
    memcpy(message + 1, name.hash, sizeof(name.hash));
    if (size > 0)
        memcpy(message + 1 + sizeof(name.hash), more, size);
    return send(fd, message, 1 + sizeof(name.hash) + size, 0);
}

TEST(sqlite_wake, a_message_has_the_record_and_the_result)
{
    struct pair p;
    pair_open(&p);
    pair_settle(&p, 5000, SENT_MAX);
    kit_run_until(&p.b, &p.b.records, 1);
    CHECK_UINT_EQ(p.b.told.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(p.b.told.epoch, p.epoch);
    CHECK_UINT_EQ(p.b.told.mode, VOW_SHARED);
    CHECK_UINT_EQ(p.b.told.takeovers, 0);
    CHECK(p.b.told.failed);
    CHECK_UINT_EQ(p.b.told.size, SENT_MAX);
    CHECK_UINT_EQ(p.b.told.first, 'v');
    CHECK_UINT_EQ(p.b.told.cost_ms, 7);
    CHECK(p.b.told.left_ms <= 5000);
    CHECK_STR_EQ(p.b.told.label, "label");
    CHECK_STR_EQ(p.b.told.runner, "runner");
    pair_close(&p);
}

TEST(sqlite_wake, a_message_has_an_empty_result_too)
{
    struct pair p;
    pair_open(&p);
    pair_settle(&p, 0, 0);
    kit_run_until(&p.b, &p.b.records, 1);
    CHECK_UINT_EQ(p.b.told.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(p.b.told.size, 0);
    pair_close(&p);
}

TEST(sqlite_wake, a_folder_with_a_long_path_has_wake_ups)
{
    struct pair p;
    char path[600];
    folder_open(&p.folder);
    snprintf(path, sizeof(path), "%s/%0150d", p.folder.path, 0);
    pair_open_at(&p, path);
    pair_settle(&p, 0, 10);
    kit_run_until(&p.b, &p.b.records, 1);
    CHECK_UINT_EQ(p.b.told.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(p.b.told.size, 10);
    pair_close(&p);
}

TEST(sqlite_wake, a_large_result_is_read_from_the_store)
{
    struct pair p;
    pair_open(&p);
    pair_settle(&p, 0, SENT_MAX + 1);
    kit_run_until(&p.b, &p.b.records, 1);
    CHECK_UINT_EQ(p.b.told.status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(kit_claim_as(&p.b, &p.wait).size, SENT_MAX + 1);
    pair_close(&p);
}

/* The next run replaces the row that has the result. */
TEST(sqlite_wake, a_result_is_left_though_the_name_runs_again)
{
    static const size_t sizes[] = {0, SENT_MAX + 1, FILE_INLINE_MAX + 1};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct pair p;
        pair_open(&p);
        pair_settle(&p, 0, sizes[i]);
        CHECK_UINT_EQ(kit_claim(&p.a, "a", 3).status, VOW_STATUS_OWNED);
        struct kit_answer got = kit_claim_as(&p.b, &p.wait);
        CHECK_UINT_EQ(got.status, VOW_STATUS_SETTLED);
        CHECK_UINT_EQ(got.size, sizes[i]);
        pair_close(&p);
    }
}

/* A result with a time to live of 0 is for those who waited: the instance that
 * got the result with the message does not find the result again. */
TEST(sqlite_wake, a_new_caller_does_not_get_what_the_message_brought)
{
    struct pair p;
    pair_open(&p);
    pair_settle(&p, 0, 3);
    kit_run_until(&p.b, &p.b.records, 1);
    CHECK_UINT_EQ(p.b.told.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(kit_claim(&p.b, "a", 3).status, VOW_STATUS_OWNED);
    pair_close(&p);
}

TEST(sqlite_wake, a_lost_message_loses_no_result)
{
    struct pair p;
    char path[600];
    pair_open(&p);
    socket_path(&p, &p.b, path, sizeof(path));
    CHECK(unlink(path) == 0); /* nothing can be sent to `b` */
    pair_settle(&p, 0, 3);
    struct kit_answer got = kit_claim_as(&p.b, &p.wait);
    CHECK_UINT_EQ(got.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(got.size, 3);
    CHECK_UINT_EQ(p.b.records, 0);
    pair_close(&p);
}

/* The kernel takes no more messages for `b`: the message goes out when `b` has
 * read, without the result. */
TEST(sqlite_wake, a_refused_message_is_sent_again_without_the_result)
{
    struct pair p;
    pair_open(&p);
    int fd = socket_to(&p, &p.b);
    unsigned others = 0;
    while (message_to(fd, FILE_CANCEL, NULL, 0) > 0)
        others++;
    CHECK(errno == EAGAIN);
    uint64_t since = kit_now_ms();
    pair_settle(&p, 0, 3);
    CHECK(vow__file_of(p.a.store)->unsent.n > 0);
    kit_run_until(&p.b, &p.b.cancels, others);
    while (vow__file_of(p.a.store)->unsent.n > 0)
        run_ms(&p.a, 2);
    /* A busy machine may have taken longer than a message is kept. */
    while (p.b.records == 0 && kit_now_ms() - since < FILE_RECHECK_MS)
        run_ms(&p.b, 2);
    CHECK(p.b.records == 1 || kit_now_ms() - since >= FILE_RECHECK_MS);
    CHECK_UINT_EQ(p.b.told.status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(kit_claim_as(&p.b, &p.wait).size, 3);
    CHECK(close(fd) == 0);
    pair_close(&p);
}

TEST(sqlite_wake, a_message_that_makes_no_sense_does_not_count)
{
    static const unsigned char junk[256] = {255};
    struct pair p;
    pair_open(&p);
    int fd = socket_to(&p, &p.b);
    for (size_t size = 1; size <= sizeof(junk); size += 17)
        CHECK(message_to(fd, FILE_RECORD, junk, size) > 0 || errno == EAGAIN);
    CHECK(send(fd, "R", 1, 0) > 0 || errno == EAGAIN);
    while (message_to(fd, FILE_CANCEL, junk, 1) < 0 ||
           message_to(fd, 'X', NULL, 0) < 0 ||
           message_to(fd, FILE_CANCEL, NULL, 0) < 0)
        run_ms(&p.b, 2);
    kit_run_until(&p.b, &p.b.cancels, 1); /* the last message */
    CHECK_UINT_EQ(p.b.records, 0);
    CHECK_UINT_EQ(p.b.places, 0);
    CHECK(close(fd) == 0);
    pair_close(&p);
}

/* The folder keeps other users out. Also through a socket that is connected,
 * which a process may have inherited, another user tells nothing. */
TEST(sqlite_wake, another_user_wakes_nobody)
{
    struct pair p;
    struct stat st;
    char path[600];
    pair_open(&p);
    CHECK(stat(p.folder.path, &st) == 0);
    CHECK_UINT_EQ(st.st_mode & 0777, 0700);
    if (geteuid() != 0) {
        pair_close(&p);
        SKIP("only root can become another user");
    }
    int fd = socket_to(&p, &p.b);
    socket_path(&p, &p.b, path, sizeof(path));
    pid_t pid = kit_child();
    if (pid == 0) {
        struct sockaddr_un at = {.sun_family = AF_UNIX};
        memcpy(at.sun_path, path, strlen(path));
        int own = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (setuid(NOBODY) != 0 ||
            connect(own, (const struct sockaddr *)&at, sizeof(at)) == 0 ||
            errno != EACCES || message_to(fd, FILE_RECORD, NULL, 0) < 0)
            _exit(1);
        _exit(0);
    }
    kit_wait(pid);
    CHECK(message_to(fd, FILE_CANCEL, NULL, 0) > 0);
    kit_run_until(&p.b, &p.b.cancels, 1);
    CHECK_UINT_EQ(p.b.records, 0);
    CHECK(close(fd) == 0);
    pair_close(&p);
}
