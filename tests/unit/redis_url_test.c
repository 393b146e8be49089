/* SPDX-License-Identifier: MIT */
/* The address of a store on Redis: what it says, what is refused, and that no
 * sentence ever has a password in it. */
#include "fault.h"
#include "folder.h"
#include "store/redis/redis_internal.h"
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct got {
    struct test_alloc alloc;
    struct vow__redis_where w;
    int code;
    char why[VOW__REDIS_WHY];
};

static void read_url(struct got *g, const char *url, const vow_redis_opts *opts)
{
    test_alloc_init(&g->alloc);
    struct vow_alloc hook = test_alloc_hook(&g->alloc);
    memset(g->why, 'x', sizeof(g->why));
    g->code = vow__redis_where(url, opts, &hook, &g->w, g->why, sizeof(g->why));
    CHECK(memchr(g->why, 0, sizeof(g->why)) != NULL);
    if (g->code == 0)
        CHECK_STR_EQ(g->why, "");
}

/* It can be read; done() afterwards. */
static void want(struct got *g, const char *url, const vow_redis_opts *opts)
{
    read_url(g, url, opts);
    if (g->code != 0)
        FAIL("%s: %s", url, g->why);
}

static void done(struct got *g)
{
    vow__redis_where_fini(&g->w);
    test_alloc_fini(TEST_HERE, &g->alloc);
}

static void refuse(const char *url, const vow_redis_opts *opts,
                   const char *because)
{
    struct got g;
    read_url(&g, url, opts);
    CHECK_INT_EQ(g.code, VOW_EINVAL);
    if (strstr(g.why, because) == NULL)
        FAIL("%s: no \"%s\" in \"%s\"", url, because, g.why);
    CHECK(strstr(g.why, "secret") == NULL);
    test_alloc_fini(TEST_HERE, &g.alloc);
}

static void check_host(const struct got *g, size_t i, const char *host,
                       unsigned port)
{
    CHECK(i < g->w.n_hosts);
    CHECK_STR_EQ(g->w.hosts[i].host, host);
    CHECK_UINT_EQ(g->w.hosts[i].port, port);
}

/* ---- what it says -------------------------------------------------------- */

TEST(redis_url, a_host_is_enough)
{
    struct got g;
    want(&g, "redis://example.org", NULL);
    CHECK_UINT_EQ(g.w.n_hosts, 1);
    check_host(&g, 0, "example.org", 6379);
    CHECK(g.w.path == NULL && g.w.user == NULL && g.w.password == NULL);
    CHECK(g.w.master == NULL && !g.w.tls && !g.w.sealed);
    CHECK_UINT_EQ(g.w.db, 0);
    CHECK_STR_EQ(g.w.prefix, "vow:");
    CHECK_UINT_EQ(g.w.timeout_ms, 1000);
    CHECK_UINT_EQ(g.w.recheck_ms, 5000);
    CHECK_UINT_EQ(g.w.value_max, 64u << 20);
    CHECK_UINT_EQ(g.w.inline_max, 16384);
    CHECK_STR_EQ(g.w.shown, "redis://example.org:6379");
    done(&g);
}

TEST(redis_url, all_its_parts_are_read)
{
    struct got g;
    want(&g,
         "rediss://me@a:1,[::1]:2,[fe80::1%25eth0],b/7?prefix=x%3A&timeout=250"
         "&ca-file=/etc/ca&cert-file=c%26&key-file=k&server-name=s",
         NULL);
    CHECK(g.w.tls);
    CHECK_STR_EQ(g.w.user, "me");
    CHECK_UINT_EQ(g.w.n_hosts, 4);
    check_host(&g, 0, "a", 1);
    check_host(&g, 1, "::1", 2);
    check_host(&g, 2, "fe80::1%eth0", 6379);
    check_host(&g, 3, "b", 6379);
    CHECK_UINT_EQ(g.w.db, 7);
    CHECK_STR_EQ(g.w.prefix, "x:");
    CHECK_UINT_EQ(g.w.timeout_ms, 250);
    CHECK_STR_EQ(g.w.ca_file, "/etc/ca");
    CHECK_STR_EQ(g.w.cert_file, "c&");
    CHECK_STR_EQ(g.w.key_file, "k");
    CHECK_STR_EQ(g.w.server_name, "s");
    CHECK_STR_EQ(g.w.shown,
                 "rediss://me@a:1,[::1]:2,[fe80::1%eth0]:6379,b:6379/7");
    done(&g);
}

TEST(redis_url, user_and_password_may_be_escaped)
{
    static const struct {
        const char *url, *user, *password;
    } all[] = {
        {"redis://u:secret@h", "u", "secret"},
        {"redis://:secret@h", NULL, "secret"},
        {"redis://u@h", "u", NULL},
        {"redis://u:@h", "u", NULL},
        {"redis://@h", NULL, NULL},
        {"redis://a%3Ab:s%2Fe%3fc%40ret%25@h", "a:b", "s/e?c@ret%"},
        {"redis://u:a:b@c@h", "u", "a:b@c"},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct got g;
        want(&g, all[i].url, NULL);
        CHECK((g.w.user == NULL) == (all[i].user == NULL));
        CHECK((g.w.password == NULL) == (all[i].password == NULL));
        if (all[i].user != NULL)
            CHECK_STR_EQ(g.w.user, all[i].user);
        if (all[i].password != NULL)
            CHECK_STR_EQ(g.w.password, all[i].password);
        check_host(&g, 0, "h", 6379);
        CHECK(strstr(g.w.shown, "ret") == NULL);
        done(&g);
    }
}

TEST(redis_url, a_socket_has_a_path_and_its_own_options)
{
    struct got g;
    want(&g, "unix:/run/a%3Fb.sock?user=me&db=3&prefix=p", NULL);
    CHECK_STR_EQ(g.w.path, "/run/a?b.sock");
    CHECK_UINT_EQ(g.w.n_hosts, 0);
    CHECK_STR_EQ(g.w.user, "me");
    CHECK_UINT_EQ(g.w.db, 3);
    CHECK_STR_EQ(g.w.prefix, "p");
    CHECK_STR_EQ(g.w.shown, "unix:/run/a?b.sock");
    done(&g);
}

TEST(redis_url, sentinels_name_a_master)
{
    struct got g;
    want(&g, "redis-sentinel://u@a,b:1/my%20main/2?sentinel-user=w", NULL);
    CHECK_STR_EQ(g.w.master, "my main");
    CHECK_UINT_EQ(g.w.db, 2);
    check_host(&g, 0, "a", 26379);
    check_host(&g, 1, "b", 1);
    CHECK_STR_EQ(g.w.user, "u");
    CHECK_STR_EQ(g.w.sentinel_user, "w");
    CHECK_STR_EQ(g.w.shown, "redis-sentinel://u@a:26379,b:1/my main/2");
    done(&g);
    want(&g, "rediss-sentinel://a/m", NULL);
    CHECK(g.w.tls);
    CHECK_UINT_EQ(g.w.db, 0);
    done(&g);
}

TEST(redis_url, empty_parts_are_the_same_as_none)
{
    static const char *const all[] = {"redis://h/", "redis://h?", "redis://h/?",
                                      "redis://h?&&",
                                      "redis://h/0?prefix=vow:&"};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct got g;
        want(&g, all[i], NULL);
        CHECK_STR_EQ(g.w.shown, "redis://h:6379");
        CHECK_STR_EQ(g.w.prefix, "vow:");
        done(&g);
    }
}

TEST(redis_url, options_of_the_program_count_more)
{
    struct got g;
    want(&g, "redis://a:secret@h?prefix=x&timeout=7",
         VOW_REDIS_OPTS(.user = "b", .password = "other", .prefix = "",
                        .timeout_ms = 9, .recheck_ms = 11, .value_max = 100));
    CHECK_STR_EQ(g.w.user, "b");
    CHECK_STR_EQ(g.w.password, "other");
    CHECK_STR_EQ(g.w.prefix, "");
    CHECK_UINT_EQ(g.w.timeout_ms, 9);
    CHECK_UINT_EQ(g.w.recheck_ms, 11);
    CHECK_UINT_EQ(g.w.value_max, 100);
    CHECK_UINT_EQ(g.w.inline_max, 100);
    done(&g);
}

TEST(redis_url, a_long_address_is_shown_in_part)
{
    char url[2048] = "redis://";
    for (int i = 0; i < 16; i++) {
        size_t n = strlen(url);
        snprintf(url + n, sizeof(url) - n, "%sa-host-with-a-long-name-%d",
                 i > 0 ? "," : "", i);
    }
    struct got g;
    want(&g, url, NULL);
    CHECK_UINT_EQ(g.w.n_hosts, 16);
    CHECK_UINT_EQ(strlen(g.w.shown), sizeof(g.w.shown) - 1);
    done(&g);
    size_t n = strlen(url);
    snprintf(url + n, sizeof(url) - n, ",one-more");
    refuse(url, NULL, "at most 16 hosts");
}

/* ---- what is refused ----------------------------------------------------- */

TEST(redis_url, what_is_none_is_refused_with_a_sentence)
{
    static const struct {
        const char *url, *because;
    } all[] = {
        {"", "begins with redis://"},
        {"redis:", "begins with redis://"},
        {"redis:/h", "begins with redis://"},
        {"http://h", "begins with redis://"},
        {"REDIS://h", "begins with redis://"},
        {"redis://", "host 1 is empty"},
        {"redis:///", "host 1 is empty"},
        {"redis://u@", "host 1 is empty"},
        {"redis://h,", "host 2 is empty"},
        {"redis://,h", "host 1 is empty"},
        {"redis://:1", "host 1 is empty"},
        {"redis://[]", "host 1 is empty"},
        {"redis://[::1", "] is missing"},
        {"redis://[::1]x", "port is a number"},
        {"redis://[::1]1", "port is a number"},
        {"redis://::1", "in brackets"},
        {"redis://h:1:2", "in brackets"},
        {"redis://h:", "port is a number"},
        {"redis://h:0", "port is a number"},
        {"redis://h:65536", "port is a number"},
        {"redis://h:99999999999999999999999999", "port is a number"},
        {"redis://h:+1", "port is a number"},
        {"redis://h:0x1", "port is a number"},
        {"redis://a b", "sign that no host has"},
        {"redis://a%0ab", "sign that no host has"},
        {"redis://a%2Fb", "sign that no host has"},
        {"redis://a\\b", "sign that no host has"},
        {"redis://h%", "two hex digits"},
        {"redis://h%1", "two hex digits"},
        {"redis://h%1g", "two hex digits"},
        {"redis://h%00", "zero byte"},
        {"redis://h/x", "database is a number"},
        {"redis://h/-1", "database is a number"},
        {"redis://h/1/2", "database is a number"},
        {"redis://h/99999999", "database is a number"},
        {"redis://h?x=1", "there are password-file, prefix"},
        {"redis://h?Prefix=1", "there are password-file, prefix"},
        {"redis://h?password=secret", "with password-file"},
        {"redis://h?prefix", "prefix has no value"},
        {"redis://h?prefix=", "prefix has no value"},
        {"redis://h?prefix=a&prefix=b", "prefix is given twice"},
        {"redis://h?prefix=%7b", "none of {}"},
        {"redis://h?prefix=a*", "none of {}"},
        {"redis://h?prefix=a%20b", "none of {}"},
        {"redis://h?prefix=%e4", "none of {}"},
        {"redis://h?timeout=0", "timeout is a number"},
        {"redis://h?timeout=1s", "timeout is a number"},
        {"redis://h?timeout=99999999999", "timeout is a number"},
        {"redis://h?ca-file=x", "for TLS"},
        {"redis://h?key-file=x", "for TLS"},
        {"unix:/s?server-name=x", "for TLS"},
        {"rediss://h?key-file=x", "goes with cert-file"},
        {"redis://h?sentinel-user=x", "for redis-sentinel"},
        {"redis://h?user=x", "redis://USER@HOST/DB"},
        {"redis://h?db=1", "redis://USER@HOST/DB"},
        {"unix:", "path of a socket"},
        {"unix:?db=1", "path of a socket"},
        {"unix:/s?db=x", "database is a number"},
        {"redis-sentinel://h", "name of their master"},
        {"redis-sentinel://h/", "name of their master"},
        {"redis-sentinel://h//1", "name of their master"},
        {"redis-sentinel://h/m/x", "database is a number"},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        refuse(all[i].url, NULL, all[i].because);
}

TEST(redis_url, what_is_too_long_is_refused)
{
    char url[4096];
    char long_text[2049];
    memset(long_text, 'a', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = 0;
    snprintf(url, sizeof(url), "redis://%.254s", long_text);
    refuse(url, NULL, "longer than 253");
    snprintf(url, sizeof(url), "redis://%.1025s@h", long_text);
    refuse(url, NULL, "more than 1024");
    snprintf(url, sizeof(url), "redis://h?prefix=%.129s", long_text);
    refuse(url, NULL, "at most 128");
    snprintf(url, sizeof(url), "unix:/%.107s", long_text);
    refuse(url, NULL, "at most 107");
    struct got g;
    snprintf(url, sizeof(url), "unix:/%.106s", long_text);
    want(&g, url, NULL);
    done(&g);
}

/* A sign that should have been escaped cuts the address at another place than
 * was meant, in the middle of the password. */
TEST(redis_url, no_sentence_shows_a_password)
{
    static const char *const all[] = {
        "redis://u:secret/x@h",
        "redis://u:secret?x@h",
        "redis://u:x/secret@h",
        "redis://u:x?secret@h",
        "redis://u:x?secret=1@h",
        "redis://u:x@y/secret@h",
        "redis://u:x@y?secret@h",
        "redis://:secret",
        "redis://u:secret",
        "redis://u:secret@h:x",
        "redis://u:secret@",
        "redis://u:secret@h?x=y",
        "redis://u:secret%@h",
        "redis://u:secret@h?password=secret",
        "redis://u:x@h?password=secret",
        "redis://u:secret@h?prefix={",
        "redis-sentinel://u:secret@h",
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        refuse(all[i], NULL, "");
}

TEST(redis_url, options_of_the_program_are_checked_as_well)
{
    refuse("redis://h", &(const vow_redis_opts){.size = 1}, "this version");
    refuse("redis://h",
           VOW_REDIS_OPTS(.password = "secret", .password_file = "x"),
           "not both");
    refuse("redis://u:secret@h?password-file=/dev/null", NULL, "not both");
    refuse("redis://h", VOW_REDIS_OPTS(.prefix = "{x}"), "none of {}");
    refuse("redis://h", VOW_REDIS_OPTS(.ca_file = "x"), "for TLS");
    refuse("redis://h", VOW_REDIS_OPTS(.sentinel_user = "x"), "sentinel");
    refuse("redis://h", VOW_REDIS_OPTS(.timeout_ms = UINT64_MAX), "a day");
    refuse("redis://h", VOW_REDIS_OPTS(.recheck_ms = UINT64_MAX), "a day");
    refuse("redis://h", VOW_REDIS_OPTS(.value_max = SIZE_MAX), "512 MiB");
}

/* ---- files --------------------------------------------------------------- */

static const char *file_with(const struct folder *f, const void *bytes,
                             size_t n)
{
    static char path[FOLDER_MAX + 8];
    snprintf(path, sizeof(path), "%s/f", f->path);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    CHECK(fwrite(bytes, 1, n, file) == n);
    CHECK(fclose(file) == 0);
    return path;
}

TEST(redis_url, a_password_is_the_first_line_of_its_file)
{
    static const struct {
        const char *text, *password;
    } all[] = {{"secret", "secret"},
               {"secret\n", "secret"},
               {"secret\r\n", "secret"},
               {" se cret \nother\n", " se cret "}};
    struct folder f;
    folder_open(&f);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct got g;
        char url[256];
        const char *path = file_with(&f, all[i].text, strlen(all[i].text));
        want(&g, "redis://h", VOW_REDIS_OPTS(.password_file = path));
        CHECK_STR_EQ(g.w.password, all[i].password);
        done(&g);
        snprintf(url, sizeof(url), "redis://h?password-file=%s", path);
        CHECK(chmod(path, 0640) == 0); /* a group may read it */
        want(&g, url, NULL);
        CHECK_STR_EQ(g.w.password, all[i].password);
        done(&g);
        snprintf(url, sizeof(url),
                 "redis-sentinel://h/m?sentinel-password-file=%s", path);
        want(&g, url, NULL);
        CHECK_STR_EQ(g.w.sentinel_password, all[i].password);
        CHECK(g.w.password == NULL);
        done(&g);
    }
    folder_close(&f);
}

TEST(redis_url, the_environment_has_a_password_for_those_without)
{
    struct got g;
    CHECK(setenv("VOW_STORE_PASSWORD", "from outside", 1) == 0);
    want(&g, "redis://u@h", NULL);
    CHECK_STR_EQ(g.w.password, "from outside");
    done(&g);
    want(&g, "redis://u:own@h", NULL);
    CHECK_STR_EQ(g.w.password, "own");
    done(&g);
    want(&g, "redis://u@h", VOW_REDIS_OPTS(.password = "given"));
    CHECK_STR_EQ(g.w.password, "given");
    done(&g);
}

TEST(redis_url, a_password_file_that_is_none_is_refused)
{
    static char big[5000];
    struct folder f;
    folder_open(&f);
    memset(big, 's', sizeof(big));
    refuse("redis://h", VOW_REDIS_OPTS(.password_file = "/no/such/file"),
           "/no/such/file: No such file");
    refuse("redis://h", VOW_REDIS_OPTS(.password_file = f.path), "directory");
    refuse("redis://h", VOW_REDIS_OPTS(.password_file = file_with(&f, "", 0)),
           "empty");
    refuse("redis://h",
           VOW_REDIS_OPTS(.password_file = file_with(&f, "\nx", 2)), "empty");
    refuse("redis://h",
           VOW_REDIS_OPTS(.password_file = file_with(&f, "sec\0ret", 7)),
           "zero byte");
    refuse("redis://h",
           VOW_REDIS_OPTS(.password_file = file_with(&f, big, 4097)),
           "more than 4096");
    struct got g;
    want(&g, "redis://h",
         VOW_REDIS_OPTS(.password_file = file_with(&f, big, 4096)));
    CHECK_UINT_EQ(strlen(g.w.password), 4096);
    done(&g);
    if (geteuid() != 0) {
        const char *path = file_with(&f, "secret", 6);
        CHECK(chmod(path, 0) == 0);
        refuse("redis://h", VOW_REDIS_OPTS(.password_file = path), "denied");
    }
    folder_close(&f);
}

TEST(redis_url, a_secret_that_others_can_read_is_refused)
{
    static const char *const options[] = {
        "redis://h?password-file=",
        "redis://h?seal-file=",
        "redis-sentinel://h/m?sentinel-password-file=",
        "rediss://h?cert-file=/dev/null&key-file=",
        "rediss://h?cert-file=",
    };
    struct folder f;
    folder_open(&f);
    const char *path = file_with(&f, "secret", 6);
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        char url[256];
        snprintf(url, sizeof(url), "%s%s", options[i], path);
        CHECK(chmod(path, 0604) == 0);
        refuse(url, NULL, "can be read by everybody (mode 0604)");
        CHECK(chmod(path, 0600) == 0);
        if (geteuid() != 0)
            continue;
        CHECK(chown(path, 54321, 0) == 0);
        refuse(url, NULL, "belongs to user 54321");
        CHECK(chown(path, 0, 0) == 0);
    }
    folder_close(&f);
}

TEST(redis_url, a_seal_is_bytes_or_digits)
{
    unsigned char key[32];
    char digits[80] = "";
    struct got g;
    struct folder f;
    folder_open(&f);
    for (size_t i = 0; i < sizeof(key); i++) {
        key[i] = (unsigned char)(i * 7 + 1);
        snprintf(digits + 2 * i, 3, i % 2 == 0 ? "%02x" : "%02X", key[i]);
    }
    want(&g, "redis://h", VOW_REDIS_OPTS(.seal_file = file_with(&f, key, 32)));
    CHECK(g.w.sealed);
    CHECK_MEM_EQ(g.w.seal, key, 32);
    done(&g);
    CHECK(!g.w.sealed);
    for (size_t i = 0; i < 32; i++)
        CHECK_UINT_EQ(g.w.seal[i], 0);
    digits[64] = '\n';
    want(&g, "redis://h",
         VOW_REDIS_OPTS(.seal_file = file_with(&f, digits, 65)));
    CHECK_MEM_EQ(g.w.seal, key, 32);
    done(&g);
    refuse("redis://h", VOW_REDIS_OPTS(.seal_file = file_with(&f, digits, 63)),
           "64 hex");
    char url[128];
    snprintf(url, sizeof(url), "redis://h?seal-file=%s",
             file_with(&f, digits, 64));
    want(&g, url, NULL);
    CHECK_MEM_EQ(g.w.seal, key, 32);
    done(&g);
    refuse("redis://h", VOW_REDIS_OPTS(.seal_file = file_with(&f, key, 31)),
           "32 bytes");
    digits[5] = 'g';
    refuse("redis://h", VOW_REDIS_OPTS(.seal_file = file_with(&f, digits, 64)),
           "64 hex");
    folder_close(&f);
}

/* ---- anything at all ----------------------------------------------------- */

TEST(redis_url, random_addresses_are_read_or_refused)
{
    static const char signs[] = "redis://:@/?&=%,[]-.#12ahux\x80\x01 {";
    static const char *const begins[] = {"redis://", "rediss://",
                                         "unix:", "redis-sentinel://", ""};
    uint64_t state = test_seed();
    for (int i = 0; i < 100000; i++) {
        char url[64];
        struct got g;
        size_t n = (size_t)snprintf(url, sizeof(url), "%s",
                                    begins[test_random(&state) % 5]);
        size_t end = n + test_random(&state) % 40;
        while (n < end)
            url[n++] = signs[test_random(&state) % (sizeof(signs) - 1)];
        url[n] = 0;
        read_url(&g, url, NULL);
        CHECK(g.code == 0 || (g.code == VOW_EINVAL && g.why[0] != 0));
        if (g.code == 0)
            vow__redis_where_fini(&g.w);
        test_alloc_fini(TEST_HERE, &g.alloc);
    }
}

FAULT_SWEEP(redis_url, reading_survives_every_fault, FAULT_ALLOC)
{
    struct vow__redis_where where;
    char why[VOW__REDIS_WHY];
    int rc = vow__redis_where(
        "rediss-sentinel://u:p@a,b/m/1?ca-file=a&cert-file=b&key-file=c"
        "&server-name=d&sentinel-user=e&prefix=f",
        NULL, vow_loop_alloc(w->loop), &where, why, sizeof(why));
    CHECK(rc == 0 || fault_explains(w, rc));
    if (rc == 0)
        vow__redis_where_fini(&where);
}
