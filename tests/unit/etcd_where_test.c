/* SPDX-License-Identifier: MIT */
/* The address of a store on etcd: what it says, what is refused, and that no
 * sentence ever has a password in it. What it has in common with the addresses
 * of other servers is tested with those. */
#include "fault.h"
#include "folder.h"
#include "store/etcd/etcd_internal.h"
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct got {
    struct test_alloc alloc;
    struct vow__etcd_where w;
    int code;
    char why[VOW__ETCD_WHY];
};

static void read_url(struct got *g, const char *url, const vow_etcd_opts *opts)
{
    test_alloc_init(&g->alloc);
    struct vow_alloc hook = test_alloc_hook(&g->alloc);
    memset(g->why, 'x', sizeof(g->why));
    g->code = vow__etcd_where(url, opts, &hook, &g->w, g->why, sizeof(g->why));
    CHECK(memchr(g->why, 0, sizeof(g->why)) != NULL);
    if (g->code == 0)
        CHECK_STR_EQ(g->why, "");
}

/* It can be read; done() afterwards. */
static void want(struct got *g, const char *url, const vow_etcd_opts *opts)
{
    read_url(g, url, opts);
    if (g->code != 0)
        FAIL("%s: %s", url, g->why);
}

static void done(struct got *g)
{
    vow__etcd_where_fini(&g->w);
    test_alloc_fini(TEST_HERE, &g->alloc);
}

static void refuse(const char *url, const vow_etcd_opts *opts,
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

/* ---- what it says -------------------------------------------------------- */

TEST(etcd_where, a_host_is_enough)
{
    struct got g;
    want(&g, "etcd://example.org", NULL);
    CHECK_UINT_EQ(g.w.n_hosts, 1);
    CHECK_STR_EQ(g.w.hosts[0].shown, "example.org:2379");
    CHECK(!g.w.tls);
    CHECK(g.w.user == NULL && g.w.password == NULL && g.w.results == NULL);
    CHECK(g.w.ca_file == NULL && g.w.cert_file == NULL && g.w.key_file == NULL);
    CHECK_STR_EQ(g.w.prefix, "vow/");
    CHECK_UINT_EQ(g.w.timeout_ms, 2000);
    CHECK_UINT_EQ(g.w.recheck_ms, 5000);
    CHECK_UINT_EQ(g.w.value_max, 65536);
    CHECK_UINT_EQ(g.w.connections, 8);
    CHECK_STR_EQ(g.w.shown, "etcd://example.org:2379");
    done(&g);
    want(&g, "etcd://h/", NULL); /* a path without anything in it */
    done(&g);
}

TEST(etcd_where, all_its_parts_are_read)
{
    struct got g;
    want(&g,
         "etcds://me:secret%2F@a:1,[::1]:2,[fe80::1%25eth0],b_1"
         "?prefix=x%2F&timeout=250&ca-file=/etc/ca&cert-file=c%26&key-file=k"
         "&results=redis%3A%2F%2Fh",
         NULL);
    CHECK_STR_EQ(g.w.user, "me");
    CHECK_STR_EQ(g.w.password, "secret/");
    CHECK_UINT_EQ(g.w.n_hosts, 4);
    CHECK(g.w.tls);
    CHECK_STR_EQ(g.w.hosts[0].shown, "a:1");
    CHECK_STR_EQ(g.w.hosts[1].shown, "[::1]:2");
    CHECK_STR_EQ(g.w.hosts[2].shown, "[fe80::1%eth0]:2379");
    CHECK_STR_EQ(g.w.hosts[3].shown, "b_1:2379");
    CHECK_STR_EQ(g.w.prefix, "x/");
    CHECK_UINT_EQ(g.w.timeout_ms, 250);
    CHECK_STR_EQ(g.w.ca_file, "/etc/ca");
    CHECK_STR_EQ(g.w.cert_file, "c&");
    CHECK_STR_EQ(g.w.key_file, "k");
    CHECK_STR_EQ(g.w.results, "redis://h");
    CHECK_STR_EQ(g.w.shown, "etcds://me@a:1,[::1]:2,[fe80::1%eth0]:2379,"
                            "b_1:2379");
    done(&g);
}

TEST(etcd_where, what_the_program_sets_counts_more)
{
    struct got g;
    want(&g,
         "etcds://me:secret@h?prefix=x&timeout=250&ca-file=a&cert-file=b"
         "&key-file=c&results=d",
         VOW_ETCD_OPTS(.user = "you", .password = "other", .prefix = "",
                       .ca_file = "A", .cert_file = "B", .key_file = "C",
                       .results = "D", .timeout_ms = 1, .recheck_ms = 2,
                       .value_max = 3, .connections = 4));
    CHECK_STR_EQ(g.w.user, "you");
    CHECK_STR_EQ(g.w.password, "other");
    CHECK_STR_EQ(g.w.prefix, "");
    CHECK_STR_EQ(g.w.ca_file, "A");
    CHECK_STR_EQ(g.w.cert_file, "B");
    CHECK_STR_EQ(g.w.key_file, "C");
    CHECK_STR_EQ(g.w.results, "D");
    CHECK_UINT_EQ(g.w.timeout_ms, 1);
    CHECK_UINT_EQ(g.w.recheck_ms, 2);
    CHECK_UINT_EQ(g.w.value_max, 3);
    CHECK_UINT_EQ(g.w.connections, 4);
    CHECK_STR_EQ(g.w.shown, "etcds://you@h:2379");
    done(&g);
}

TEST(etcd_where, sixteen_hosts_and_what_is_shown_of_many)
{
    struct got g;
    char url[16 * 64] = "etcd://h";
    for (int i = 1; i < 16; i++)
        strcat(url, ",a-host-with-a-long-name-of-its-own.example.org");
    want(&g, url, NULL);
    CHECK_UINT_EQ(g.w.n_hosts, 16);
    CHECK_UINT_EQ(strlen(g.w.shown), sizeof(g.w.shown) - 1);
    done(&g);
    strcat(url, ",b");
    refuse(url, NULL, "at most 16 hosts");
}

/* ---- what is refused ----------------------------------------------------- */

TEST(etcd_where, what_is_wrong_is_said)
{
    static const struct {
        const char *url, *because;
    } all[] = {
        {"", "begins with etcd:// or etcds://"},
        {"etcd:", "begins with"},
        {"http://h", "begins with"},
        {"Etcd://h", "begins with"},
        {"etcd://", "host 1 is empty"},
        {"etcd://h,", "host 2 is empty"},
        {"etcd://h:0", "port is a number"},
        {"etcd://::1", "in brackets"},
        {"etcd://h/1", "no path behind its hosts; what all keys begin with is "
                       "the option prefix"},
        {"etcd://h/vow/", "no path"},
        {"etcd://h/vow?timeout=1", "no path"},
        {"etcd://a,b%3Fc", "host 2 has a sign that no host has"},
        {"etcd://a%26b", "host 1 has a sign"},
        {"etcd://a%25b", "host 1 has a sign"},
        {"etcd://a=b", "host 1 has a sign"},
        {"etcd://a b", "host 1 has a sign"},
        {"etcd://h%0d%0aX:1", "host 1 has a sign"},
        {"etcd://h?x=1", "there are password-file, prefix, ca-file, "
                         "cert-file, key-file, results, timeout"},
        {"etcd://h?server-name=x", "there are password-file"},
        {"etcd://h?db=1", "there are password-file"},
        {"etcd://h?user=x", "there are password-file"},
        {"etcd://h?password=secret", "with password-file"},
        {"etcd://h?prefix=", "prefix has no value"},
        {"etcd://h?prefix=a%20b", "but no blanks"},
        {"etcd://h?prefix=%ff", "but no blanks"},
        {"etcd://h?timeout=0", "timeout is a number"},
        {"etcd://h?timeout=86400001", "timeout is a number"},
        {"etcd://h?ca-file=x", "for TLS: etcds://"},
        {"etcd://h?cert-file=x", "for TLS: etcds://"},
        {"etcd://h?key-file=x", "for TLS: etcds://"},
        {"etcds://h?key-file=x", "goes with cert-file"},
        {"etcd://u@h", "a user has a password: give a password-file"},
        {"etcd://:secret@h", "that of a user"},
        {"etcd://u:secret@h?password-file=/dev/null", "not both"},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        refuse(all[i].url, NULL, all[i].because);
}

TEST(etcd_where, options_of_the_program_are_checked_as_well)
{
    static char many[VOW__ETCD_PREFIX_MAX + 2];
    struct got g;
    refuse("etcd://h", &(const vow_etcd_opts){.size = 1}, "this version");
    refuse("etcd://u@h",
           VOW_ETCD_OPTS(.password = "secret", .password_file = "x"),
           "not both");
    refuse("etcd://h", VOW_ETCD_OPTS(.password = "secret"), "that of a user");
    refuse("etcd://h", VOW_ETCD_OPTS(.user = "u"), "give a password-file");
    refuse("etcd://h", VOW_ETCD_OPTS(.ca_file = "x"), "for TLS");
    refuse("etcds://h", VOW_ETCD_OPTS(.key_file = "x"), "goes with cert-file");
    refuse("etcd://h", VOW_ETCD_OPTS(.timeout_ms = UINT64_MAX), "a day");
    refuse("etcd://h", VOW_ETCD_OPTS(.recheck_ms = UINT64_MAX), "a day");
    refuse("etcd://h", VOW_ETCD_OPTS(.value_max = SIZE_MAX), "1024 KiB");
    refuse("etcd://h", VOW_ETCD_OPTS(.connections = SIZE_MAX), "1024");
    memset(many, 'p', sizeof(many) - 1);
    refuse("etcd://h", VOW_ETCD_OPTS(.prefix = many), "at most 128 bytes");
    many[VOW__ETCD_PREFIX_MAX] = 0;
    want(&g, "etcd://h", VOW_ETCD_OPTS(.prefix = many));
    done(&g);
}

TEST(etcd_where, no_sentence_shows_a_password)
{
    static const char *const all[] = {
        "etcd://u:secret/x@h",
        "etcd://u:secret?x@h",
        "etcd://u:x/secret@h",
        "etcd://u:x?secret=1@h",
        "etcd://:secret",
        "etcd://u:secret",
        "etcd://u:secret@h:x",
        "etcd://u:secret@",
        "etcd://u:secret@h?x=y",
        "etcd://u:secret%@h",
        "etcd://u:secret@h/x",
        "etcd://u:x@h?password=secret",
        "etcd://u:secret@h?prefix=%01",
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        refuse(all[i], NULL, "");
}

/* ---- passwords ----------------------------------------------------------- */

TEST(etcd_where, a_password_is_the_first_line_of_its_file)
{
    struct got g;
    struct folder f;
    char path[FOLDER_MAX + 8], url[256];
    folder_open(&f);
    snprintf(path, sizeof(path), "%s/f", f.path);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    CHECK(fputs("secret\r\nmore\n", file) >= 0);
    CHECK(fclose(file) == 0);
    snprintf(url, sizeof(url), "etcd://u@h?password-file=%s", path);
    want(&g, url, NULL);
    CHECK_STR_EQ(g.w.password, "secret");
    CHECK_STR_EQ(g.w.shown, "etcd://u@h:2379");
    done(&g);
    want(&g, "etcd://u:other@h", VOW_ETCD_OPTS(.password_file = path));
    CHECK_STR_EQ(g.w.password, "secret");
    done(&g);
    refuse("etcd://u@h?password-file=/no/such/file", NULL, "/no/such/file: No");
    folder_close(&f);
}

/* It may be meant for the store of results. */
TEST(etcd_where, the_environment_has_a_password_for_a_user_without)
{
    struct got g;
    CHECK(setenv("VOW_STORE_PASSWORD", "from outside", 1) == 0);
    want(&g, "etcd://u@h", NULL);
    CHECK_STR_EQ(g.w.password, "from outside");
    done(&g);
    want(&g, "etcd://u:own@h", NULL);
    CHECK_STR_EQ(g.w.password, "own");
    done(&g);
    want(&g, "etcd://h", NULL);
    CHECK(g.w.password == NULL);
    done(&g);
    want(&g, "etcd://h", VOW_ETCD_OPTS(.user = "u"));
    CHECK_STR_EQ(g.w.password, "from outside");
    done(&g);
}

/* ---- anything at all ----------------------------------------------------- */

TEST(etcd_where, random_addresses_are_read_or_refused)
{
    static const char signs[] = "etcd://:@/?&=%,[]-.#12ahux\x80\x01 {";
    static const char *const begins[] = {"etcd://", "etcds://", "etcd://u:p@",
                                         "etcd://[", ""};
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
            vow__etcd_where_fini(&g.w);
        test_alloc_fini(TEST_HERE, &g.alloc);
    }
}

FAULT_SWEEP(etcd_where, reading_survives_every_fault, FAULT_ALLOC)
{
    struct vow__etcd_where where;
    char why[VOW__ETCD_WHY];
    int rc = vow__etcd_where(
        "etcds://u:p@a,b?ca-file=a&cert-file=b&key-file=c&results=d&prefix=f",
        NULL, vow_loop_alloc(w->loop), &where, why, sizeof(why));
    CHECK(rc == 0 || fault_explains(w, rc));
    if (rc == 0)
        vow__etcd_where_fini(&where);
}
