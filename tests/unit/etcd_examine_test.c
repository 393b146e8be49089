/* SPDX-License-Identifier: MIT */
/* What a doctor finds at etcd: what was seen, what it means, what is asked of
 * members that say what the test wants, and of real ones. */
#include "etcd_call_rig.h"
#include "etcd_real.h"
#include "findings.h"
#include "store/etcd/etcd_examine.h"

/* ---- what it means ------------------------------------------------------- */

/* A store that asks nobody, and what a doctor has seen of it. */
struct seen {
    struct world w;
    vow_store *store;
    struct vow__check c;
    struct findings f;
};

static const struct vow__check_member well = {.answers = true,
                                              .version = "3.4.23",
                                              .id = 7,
                                              .leader = 7,
                                              .size = 20 << 20,
                                              .used = 15 << 20};

/* All is well with as many members as the address names. */
static struct seen *see(const char *url, const vow_etcd_opts *opts)
{
    static struct seen s;
    memset(&s, 0, sizeof(s));
    world_open(&s.w);
    VOW_AUTO(vow_future) opened = vow_store_etcd_open(s.w.loop, url, opts);
    CHECK_INT_EQ(vow_loop_run_until(s.w.loop, opened), 0);
    s.store = vow_as_ptr(vow_get(opened));
    s.c.etcd = vow__etcd_of(s.store);
    s.c.size = vow__etcd_where_of(s.c.etcd)->n_hosts;
    for (size_t i = 0; i < s.c.size; i++) {
        s.c.members[i] = well;
        s.c.members[i].id += i;
    }
    s.c.list_seen = s.c.alarms_seen = s.c.writes = true;
    s.c.lease_s = 2;
    s.c.rounds = 5;
    for (size_t i = 0; i < 5; i++)
        s.c.took_us[i] = 1000 * (i + 1);
    return &s;
}

static const struct findings *judge(struct seen *s)
{
    CHECK_INT_EQ(vow__check_judge(&s->c), 0);
    on_findings(0, s->c.findings, s->c.n, &s->f);
    return &s->f;
}

static void see_no_more(struct seen *s)
{
    VOW_AUTO(vow_future) closed = s->store->ops->close(s->store);
    CHECK_INT_EQ(vow_loop_run_until(s->w.loop, closed), 0);
    closed = vow_future_unref(closed);
    world_run(&s->w);
    world_close(&s->w);
}

#define THREE "etcd://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"

TEST(etcd_examine, three_members_that_are_well_are_good)
{
    struct seen *s =
        see(THREE, VOW_ETCD_OPTS(.user = "me", .password = "secret"));
    const struct findings *f = judge(s);
    for (size_t i = 0; i < f->n; i++)
        CHECK_UINT_EQ(f->at[i].level, VOW_FINDING_GOOD);
    CHECK_UINT_EQ(f->n, 3 + 7);
    CHECK_STR_EQ(f->at[0].text, "127.0.0.1:1: etcd 3.4.23, the leader");
    CHECK_STR_EQ(f->at[1].text, "127.0.0.1:2: etcd 3.4.23");
    check_finding(f, "cluster", VOW_FINDING_GOOD,
                  "3 members, which survive the loss of 1");
    check_finding(f, "space", VOW_FINDING_GOOD,
                  "20.0 MB on disk, 15.0 MB of it in use");
    check_finding(f, "rights", VOW_FINDING_GOOD, "below vow/");
    check_finding(f, "round trip", VOW_FINDING_GOOD,
                  "3.0 ms, the slowest 5.0 ms");
    check_finding(f, "leases", VOW_FINDING_GOOD, "last 2 s at least");
    check_finding(f, "encryption", VOW_FINDING_GOOD, "this machine");
    check_finding(f, "password", VOW_FINDING_GOOD, "user me has one");
    for (size_t i = 0; i < f->n; i++)
        CHECK(strstr(f->at[i].text, "secret") == NULL);
    see_no_more(s);
}

TEST(etcd_examine, few_an_even_number_and_unnamed_members_are_noted)
{
    struct seen *s = see("etcd://127.0.0.1:1", NULL);
    check_finding(judge(s), "cluster", VOW_FINDING_WARN, "1 member");
    see_no_more(s);
    s = see("etcd://127.0.0.1:1,127.0.0.1:2", NULL);
    check_finding(judge(s), "cluster", VOW_FINDING_WARN, "2 members");
    see_no_more(s);
    s = see(THREE, NULL);
    s->c.size = 5;
    check_finding(judge(s), "cluster", VOW_FINDING_WARN,
                  "survive the loss of 2; the address names 3");
    see_no_more(s);
    s = see(THREE ",127.0.0.1:4", NULL);
    check_finding(judge(s), "cluster", VOW_FINDING_WARN, "the loss of 1");
    see_no_more(s);
}

TEST(etcd_examine, a_member_that_is_away_is_bad_if_nothing_is_written)
{
    struct seen *s = see(THREE, NULL);
    s->c.members[0] = (struct vow__check_member){.why = "it is away"};
    check_finding(judge(s), "member", VOW_FINDING_WARN, "it is away");
    see_no_more(s);
    s = see(THREE, NULL);
    s->c.members[0] = (struct vow__check_member){.why = "it is away"};
    s->c.writes = false;
    snprintf(s->c.refused, sizeof(s->c.refused), "nobody leads");
    check_finding(judge(s), "member", VOW_FINDING_BAD, "it is away");
    check_finding(&s->f, "writes", VOW_FINDING_BAD, "nobody leads");
    see_no_more(s);
}

TEST(etcd_examine, a_member_without_a_leader_is_bad)
{
    struct seen *s = see(THREE, NULL);
    s->c.members[0].leader = 0;
    s->c.writes = false;
    s->c.silent = true;
    s->c.list_seen = false;
    check_finding(judge(s), "member", VOW_FINDING_BAD, "without a leader");
    for (size_t i = 0; i < s->f.n; i++) /* nobody was not allowed anything */
        CHECK(strstr(s->f.at[i].text, "allowed") == NULL);
    see_no_more(s);
}

TEST(etcd_examine, alarms_are_bad)
{
    struct seen *s = see(THREE, NULL);
    s->c.corrupt = true;
    check_finding(judge(s), "alarm", VOW_FINDING_BAD, "CORRUPT");
    see_no_more(s);
    s = see(THREE, NULL);
    s->c.no_space = true;
    s->c.writes = false;
    check_finding(judge(s), "space", VOW_FINDING_BAD, "NOSPACE");
    see_no_more(s);
}

TEST(etcd_examine, much_history_is_noted_wherever_it_is)
{
    struct seen *s = see(THREE, NULL);
    s->c.members[2].size = 600 << 20;
    check_finding(judge(s), "space", VOW_FINDING_WARN,
                  "600.0 MB on disk, 15.0 MB");
    see_no_more(s);
}

TEST(etcd_examine, what_may_not_be_seen_is_noted)
{
    struct seen *s = see(THREE, NULL);
    for (size_t i = 0; i < 3; i++)
        s->c.members[i] = (struct vow__check_member){.answers = true};
    s->c.list_seen = false;
    check_finding(judge(s), "member", VOW_FINDING_WARN, "not allowed");
    check_finding(&s->f, "cluster", VOW_FINDING_WARN, "not allowed");
    check_finding(&s->f, "space", VOW_FINDING_WARN, "not allowed");
    see_no_more(s);
}

TEST(etcd_examine, a_right_that_is_missing_is_bad)
{
    struct seen *s = see(THREE "?prefix=mine/", NULL);
    s->c.writes = false;
    s->c.denied = true;
    snprintf(s->c.refused, sizeof(s->c.refused), "permission denied");
    check_finding(judge(s), "rights", VOW_FINDING_BAD,
                  "cannot write below mine/: permission denied");
    see_no_more(s);
}

TEST(etcd_examine, no_writes_without_a_reason_is_all_there_is_to_say)
{
    struct seen *s = see(THREE, NULL);
    s->c.writes = false;
    CHECK_INT_EQ(vow__check_judge(&s->c), VOW_ESTORE);
    CHECK_UINT_EQ(s->c.n, 0);
    see_no_more(s);
}

TEST(etcd_examine, a_slow_answer_is_noted)
{
    struct seen *s = see(THREE, NULL);
    s->c.took_us[2] = 250 * 1000;
    check_finding(judge(s), "round trip", VOW_FINDING_WARN, "250.0 ms");
    see_no_more(s);
}

TEST(etcd_examine, who_could_read_and_change_it_is_told)
{
    static const struct {
        const char *url;
        bool open, user, cert;
        uint32_t way, password;
        const char *says;
    } cases[] = {
        {THREE, false, false, false, VOW_FINDING_GOOD, VOW_FINDING_WARN,
         "none is asked for"},
        {"etcd://localhost", false, false, false, VOW_FINDING_GOOD,
         VOW_FINDING_WARN, "none"},
        {"etcd://[::1]:5", false, false, false, VOW_FINDING_GOOD,
         VOW_FINDING_WARN, "none"},
        {"etcd://localhost.example.org", false, false, false, VOW_FINDING_WARN,
         VOW_FINDING_BAD, "none"},
        {"etcd://127.0.0.1,a", false, true, false, VOW_FINDING_WARN,
         VOW_FINDING_GOOD, "user me"},
        {"etcds://a", false, false, false, VOW_FINDING_GOOD, VOW_FINDING_BAD,
         "none"},
        {"etcds://a", true, true, false, VOW_FINDING_GOOD, VOW_FINDING_BAD,
         "not enabled"},
        {"etcds://a", false, false, true, VOW_FINDING_GOOD, VOW_FINDING_GOOD,
         "certificate"},
        {"etcds://a", false, true, true, VOW_FINDING_GOOD, VOW_FINDING_GOOD,
         "user me"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct seen *s =
            see(cases[i].url,
                VOW_ETCD_OPTS(.user = cases[i].user ? "me" : NULL,
                              .password = cases[i].user ? "secret" : NULL));
        struct vow__etcd_where *w =
            (struct vow__etcd_where *)vow__etcd_where_of(s->c.etcd);
        char file[] = "mine.crt";
        if (cases[i].cert)
            w->cert_file = file;
        s->c.open = cases[i].open;
        check_finding(judge(s), "encryption", cases[i].way, "");
        check_finding(&s->f, "password", cases[i].password, cases[i].says);
        w->cert_file = NULL;
        see_no_more(s);
    }
}

TEST(etcd_examine, as_many_words_as_there_can_be_have_room)
{
    char url[256] = "etcd://a";
    char port[16];
    for (int i = 1; i < VOW__ETCD_HOSTS; i++) {
        snprintf(port, sizeof(port), ",a:%d", i);
        strncat(url, port, sizeof(url) - strlen(url) - 1);
    }
    struct seen *s = see(url, NULL);
    for (size_t i = 0; i < VOW__ETCD_HOSTS; i++) {
        s->c.members[i] = (struct vow__check_member){.answers = false};
        memset(s->c.members[i].why, 'w', sizeof(s->c.members[i].why) - 1);
    }
    s->c.writes = false;
    s->c.corrupt = true;
    memset(s->c.refused, 'r', sizeof(s->c.refused) - 1);
    const struct findings *f = judge(s);
    for (size_t i = 0; i < VOW__ETCD_HOSTS; i++)
        CHECK_UINT_EQ(strlen(s->c.findings[i].text),
                      sizeof(s->c.members[i].why) - 1);
    check_finding(f, "writes", VOW_FINDING_BAD, "rrr");
    check_finding(f, "password", VOW_FINDING_BAD, "none");
    see_no_more(s);
}

/* ---- what is asked ------------------------------------------------------- */

static struct members m;
static struct findings found;

/* As a member of three would. */
static const char *say_well(struct members *mm, size_t member, const char *path,
                            const char *body)
{
    static char text[256];
    (void)mm;
    (void)body;
    if (strcmp(path, "maintenance/status") == 0) {
        snprintf(
            text, sizeof(text),
            "200 {\"header\":{\"member_id\":\"%zu\"},\"version\":\"3.5.9\","
            "\"dbSize\":\"1048576\",\"leader\":\"2\","
            "\"dbSizeInUse\":\"524288\"}",
            member + 1);
        return text;
    }
    if (strcmp(path, "lease/grant") == 0)
        return "200 {\"ID\":\"77\",\"TTL\":\"3\"}";
    if (strcmp(path, "cluster/member/list") == 0)
        return "200 {\"members\":[{},{},{}]}";
    return "200 {\"header\":{\"revision\":\"7\"},\"succeeded\":true}";
}

static int examine(struct members *mm)
{
    found = (struct findings){.done = 0};
    mm->store->ops->examine(mm->store, on_findings, &found);
    MEMBERS_UNTIL(mm, found.done);
    CHECK_UINT_EQ(found.done, 1);
    return found.code;
}

static unsigned times(const char *log, const char *word)
{
    unsigned n = 0;
    for (; (log = strstr(log, word)) != NULL; log++)
        n++;
    return n;
}

TEST(etcd_examine, all_members_are_asked_and_the_key_goes_with_its_lease)
{
    members_open(&m, 3, say_well, NULL);
    CHECK_INT_EQ(examine(&m), 0);
    for (size_t i = 0; i < 3; i++)
        CHECK_STR_EQ(found.at[i].what, "member");
    CHECK_HAS(found.at[1].text, "3.5.9, the leader");
    CHECK_HAS(m.log, "0:maintenance/status");
    CHECK_HAS(m.log, "1:maintenance/status");
    CHECK_HAS(m.log, "2:maintenance/status");
    CHECK_UINT_EQ(times(m.log, "kv/txn"), 6);
    CHECK_STR_EQ(m.body, "{\"ID\":\"77\"}");
    CHECK(strstr(m.log, "lease/revoke") > strstr(m.log, "kv/txn"));
    check_finding(&found, "leases", VOW_FINDING_GOOD, "3 s");
    check_finding(&found, "space", VOW_FINDING_GOOD, "1.0 MB on disk, 0.5 MB");
    CHECK_UINT_EQ(found.n, 3 + 7);
    members_close(&m);
}

/* m->user is a path, and behind a blank what is said of it. */
static const char *say_but(struct members *mm, size_t member, const char *path,
                           const char *body)
{
    const char *odd = mm->user;
    size_t n = strlen(path);
    if (strncmp(odd, path, n) == 0 && odd[n] == ' ')
        return odd + n + 1;
    return say_well(mm, member, path, body);
}

TEST(etcd_examine, what_is_no_etcd_is_told_by_a_code_and_a_sentence)
{
    static char *odd[] = {
        "maintenance/status 200 {}",
        "maintenance/status 200 []",
        "maintenance/status 200 ",
        "maintenance/status 200 <html></html>",
        "maintenance/status 200 {\"version\":5,\"header\":{\"member_id\":{}}}",
        "maintenance/status 200 {\"version\":\"3.4\",\"header\":[1]}",
    };
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        members_open(&m, 1, say_but, NULL);
        m.user = odd[i];
        CHECK_INT_EQ(examine(&m), VOW_ESTORE);
        CHECK_HAS(WHY(&m), "is no etcd server");
        CHECK_UINT_EQ(m.asked, 1);
        members_close(&m);
    }
}

TEST(etcd_examine, answers_of_another_shape_are_not_taken_for_good)
{
    static const struct {
        char *odd;
        int code;
        const char *what;
    } cases[] = {
        {"lease/grant 200 {}", VOW_ESTORE, NULL},
        {"lease/grant 200 {\"ID\":{},\"TTL\":[]}", VOW_ESTORE, NULL},
        {"maintenance/alarm 200 {\"alarms\":{\"alarm\":5}}", 0, "space"},
        {"maintenance/alarm 200 {\"alarms\":[5,{},{\"alarm\":[]}]}", 0,
         "space"},
        {"kv/txn 200 <html>", VOW_ESTORE, NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        members_open(&m, 1, say_but, NULL);
        m.user = cases[i].odd;
        CHECK_INT_EQ(examine(&m), cases[i].code);
        if (cases[i].code < 0)
            CHECK(strlen(WHY(&m)) > 10);
        else
            check_finding(&found, cases[i].what, VOW_FINDING_GOOD, "");
        members_close(&m);
    }
    members_open(&m, 1, say_but, NULL);
    m.user = "cluster/member/list 200 {\"members\":7}";
    CHECK_INT_EQ(examine(&m), 0);
    check_finding(&found, "cluster", VOW_FINDING_WARN, "0 members");
    members_close(&m);
}

TEST(etcd_examine, nothing_is_written_without_a_lease)
{
    members_open(&m, 1, say_but, NULL);
    m.user = "lease/grant 503 {\"error\":\"etcdserver: mvcc: database space "
             "exceeded\",\"code\":8}";
    CHECK_INT_EQ(examine(&m), VOW_ESTORE);
    CHECK_HAS(WHY(&m), "space exceeded");
    CHECK_UINT_EQ(times(m.log, "kv/txn"), 0);
    CHECK_UINT_EQ(times(m.log, "lease/revoke"), 0);
    members_close(&m);
}

TEST(etcd_examine, alarms_are_read)
{
    members_open(&m, 1, say_but, NULL);
    m.user = "maintenance/alarm 200 {\"alarms\":[{\"alarm\":\"NOSPACE\"},"
             "{\"alarm\":\"CORRUPT\"}]}";
    CHECK_INT_EQ(examine(&m), 0);
    check_finding(&found, "space", VOW_FINDING_BAD, "NOSPACE");
    check_finding(&found, "alarm", VOW_FINDING_BAD, "CORRUPT");
    members_close(&m);
}

TEST(etcd_examine, a_refusal_is_bad_and_the_lease_is_given_back)
{
    members_open(&m, 1, say_but, NULL);
    m.user = "kv/txn 403 {\"error\":\"etcdserver: permission denied\","
             "\"code\":7}";
    CHECK_INT_EQ(examine(&m), 0);
    check_finding(&found, "rights", VOW_FINDING_BAD, "permission denied");
    CHECK_UINT_EQ(times(m.log, "kv/txn"), 1);
    CHECK_UINT_EQ(times(m.log, "lease/revoke"), 1);
    members_close(&m);
}

TEST(etcd_examine, after_a_question_without_an_answer_there_is_no_other)
{
    static char *silent[] = {"lease/grant ", "maintenance/alarm ", "kv/txn "};
    for (size_t i = 0; i < 3; i++) {
        members_open(&m, 1, say_but, NULL);
        m.user = silent[i];
        found = (struct findings){.done = 0};
        m.store->ops->examine(m.store, on_findings, &found);
        members_pass(&m, 1900);
        CHECK_UINT_EQ(found.done, 0);
        members_pass(&m, 200);
        CHECK_UINT_EQ(found.done, 1);
        CHECK_INT_EQ(found.code, 0);
        check_finding(&found, "writes", VOW_FINDING_BAD, "did not answer");
        CHECK_UINT_EQ(times(m.log, "lease/revoke"), 0);
        members_close(&m);
    }
}

TEST(etcd_examine, members_that_say_nothing_take_the_time_of_one)
{
    members_open(&m, 3, say_but, NULL);
    m.user = "maintenance/status ";
    found = (struct findings){.done = 0};
    m.store->ops->examine(m.store, on_findings, &found);
    members_pass(&m, 1900);
    CHECK_UINT_EQ(found.done, 0);
    members_pass(&m, 200);
    CHECK_UINT_EQ(found.done, 1);
    CHECK_INT_EQ(found.code, VOW_ESTORE);
    CHECK_HAS(WHY(&m), "did not answer");
    members_close(&m);
}

/* Whatever is asked at that moment: it ends once. */
TEST(etcd_examine, a_store_that_is_closed_ends_it)
{
    static char *held[] = {"maintenance/status ", "lease/grant ", "kv/txn "};
    for (size_t i = 0; i < 3; i++) {
        members_open(&m, 2, say_but, NULL);
        m.user = held[i];
        found = (struct findings){.done = 0};
        m.store->ops->examine(m.store, on_findings, &found);
        members_settle(&m);
        CHECK_UINT_EQ(found.done, 0);
        members_close(&m);
        CHECK_UINT_EQ(found.done, 1);
        CHECK_INT_EQ(found.code, VOW_ECLOSED);
    }
}

FAULT_SWEEP(etcd_examine, survives_every_lack_of_memory, FAULT_ALLOC)
{
    members_begin(&m, w, 2, say_well);
    members_store(&m, NULL);
    if (m.store != NULL) {
        int code = examine(&m);
        /* An answer that there is no memory for is none. */
        CHECK(code == 0 || fault_explains(w, code) ||
              (code == VOW_ESTORE && fault_fired(w)));
    }
    members_end(&m);
}

/* ---- real members -------------------------------------------------------- */

static struct real r;

static const struct findings *examine_real(vow_store *store)
{
    found = (struct findings){.done = 0};
    store->ops->examine(store, on_findings, &found);
    REAL_UNTIL(&r, found.done);
    return &found;
}

TEST(etcd_examine, a_real_member_is_looked_at_and_left_as_it_was)
{
    real_open(&r, VOW_ETCD_OPTS(.timeout_ms = 60000));
    const struct findings *f = examine_real(r.store);
    check_finding(f, "member", VOW_FINDING_GOOD, "the leader");
    check_finding(f, "cluster", VOW_FINDING_WARN, "1 member");
    check_finding(f, "space", VOW_FINDING_GOOD, "MB");
    check_finding(f, "rights", VOW_FINDING_GOOD, "below vow/");
    check_finding(f, "round trip", VOW_FINDING_GOOD, "ms");
    check_finding(f, "leases", VOW_FINDING_GOOD, "1 s");
    CHECK_UINT_EQ(etcd_count(&r.kit, "vow/"), 0);
    CHECK_UINT_EQ(etcd_revoke_all(&r.kit), 0);
    etcd_kill(&r.kit, 0);
    CHECK_INT_EQ(examine_real(r.store)->code, VOW_ESTORE);
    CHECK_HAS(vow__etcd_explain(r.store), "refused");
    real_close(&r);
}

TEST(etcd_examine, a_real_member_shows_a_plain_user_what_is_promised)
{
    etcd_start(&r.kit, ETCD_OPTS(.user = "app", .password = "secret",
                                 .prefix = "vow/"));
    world_open_real(&r.w);
    for (size_t i = 0; i < 2; i++) {
        VOW_AUTO(vow_future)
        opened = vow_store_etcd_open(
            r.w.loop, r.kit.url,
            VOW_ETCD_OPTS(.user = "app", .password = "secret",
                          .prefix = i == 0 ? "vow/" : "other/",
                          .timeout_ms = 60000));
        CHECK_INT_EQ(vow_loop_run_until(r.w.loop, opened), 0);
        r.store = vow_as_ptr(vow_get(opened));
        const struct findings *f = examine_real(r.store);
        check_finding(f, "member", VOW_FINDING_GOOD, "etcd 3.");
        check_finding(f, "password", VOW_FINDING_GOOD, "user app");
        if (i == 0)
            check_finding(f, "rights", VOW_FINDING_GOOD, "below vow/");
        else
            check_finding(f, "rights", VOW_FINDING_BAD, "permission denied");
        VOW_AUTO(vow_future) closed = r.store->ops->close(r.store);
        CHECK_INT_EQ(vow_loop_run_until(r.w.loop, closed), 0);
    }
    world_run(&r.w);
    world_close(&r.w);
    etcd_stop(&r.kit);
}
