/* SPDX-License-Identifier: MIT */
/* error_test.c - errors: codes with names and texts, messages, causes that
 * are never lost, the place of creation, one line for people. */
#include "harness.h"
#include "world.h"

#include "vow/promise.h"

#include <pthread.h>
#include <string.h>

/* ---- codes -------------------------------------------------------------- */

TEST(error, every_code_of_ours_has_its_name_and_text)
{
#define CHECK_CODE(name, code, text)                                           \
    CHECK_STR_EQ(vow_error_name(code), #name);                                 \
    CHECK_STR_EQ(vow_error_text(code), text);
    VOW_ERROR_MAP(CHECK_CODE)
#undef CHECK_CODE
}

TEST(error, libuvs_codes_have_names_and_texts_too)
{
    CHECK_STR_EQ(vow_error_name(-2), "ENOENT");
    CHECK_STR_EQ(vow_error_name(-4095), "EOF");
    CHECK(vow_error_text(-2)[0] != '\0');
    CHECK(strcmp(vow_error_text(-2), vow_error_text(-1)) != 0);
}

TEST(error, an_unknown_code_is_called_so)
{
    CHECK_STR_EQ(vow_error_name(-77777), "EUNKNOWN");
    CHECK_STR_EQ(vow_error_name(5), "EUNKNOWN");
    CHECK(vow_error_text(-77777) != NULL);
}

TEST(error, the_library_knows_its_version)
{
    CHECK_STR_EQ(vow_version(), VOW_VERSION);
}

/* ---- making and reading ------------------------------------------------- */

TEST(error, message_is_formatted_and_copied)
{
    struct world w;
    world_open(&w);
    char name[] = "disk";
    vow_error *e = vow_error_new(w.loop, VOW_EIO, "%s %d%%", name, 99);
    name[0] = 'X';
    CHECK_INT_EQ(vow_error_code(e), VOW_EIO);
    CHECK_STR_EQ(vow_error_message(e), "disk 99%");
    CHECK_PTR_EQ(vow_error_cause(e), NULL);
    CHECK_PTR_EQ(vow_error_unref(e), NULL);
    world_close(&w);
}

TEST(error, without_a_message_speaks_the_codes_text)
{
    struct world w;
    world_open(&w);
    const char *none = NULL;
    vow_error *e =
        vow_error_new_at("here", w.loop, VOW_EBUSY, NULL, none, NULL);
    CHECK_STR_EQ(vow_error_message(e), vow_error_text(VOW_EBUSY));
    vow_error_unref(e);
    world_close(&w);
}

TEST(error, a_code_that_is_no_error_becomes_einval)
{
    struct world w;
    world_open(&w);
    vow_error *zero = vow_error_new(w.loop, 0, "zero");
    vow_error *positive = vow_error_new(w.loop, 5, "five");
    CHECK_INT_EQ(vow_error_code(zero), VOW_EINVAL);
    CHECK_INT_EQ(vow_error_code(positive), VOW_EINVAL);
    CHECK_STR_EQ(vow_error_message(positive), "five");
    vow_error_unref(zero);
    vow_error_unref(positive);
    world_close(&w);
}

/* https://github.com/petkaantonov/bluebird/issues/861: say where. */
TEST(error, knows_where_it_was_made)
{
    struct world w;
    world_open(&w);
    vow_error *e = vow_error_new_at("client.c:12", w.loop, -5, NULL, "x");
    vow_error *f = vow_error_new(w.loop, -5, "x");
    CHECK_STR_EQ(vow_error_site(e), "client.c:12");
    CHECK(strstr(vow_error_site(f), "error_test.c:") != NULL);
    vow_error_unref(e);
    vow_error_unref(f);
    world_close(&w);
}

TEST(error, null_reads_as_no_error)
{
    CHECK_INT_EQ(vow_error_code(NULL), 0);
    CHECK_STR_EQ(vow_error_message(NULL), "");
    CHECK_STR_EQ(vow_error_site(NULL), "");
    CHECK_PTR_EQ(vow_error_cause(NULL), NULL);
    CHECK_PTR_EQ(vow_error_root(NULL), NULL);
    CHECK_UINT_EQ(vow_error_count(NULL), 0);
    CHECK_PTR_EQ(vow_error_at(NULL, 0), NULL);
    CHECK_UINT_EQ(vow_error_retry_after_ms(NULL), 0);
    CHECK_PTR_EQ(vow_error_unref(NULL), NULL);
}

TEST(error, a_plain_error_gathers_no_others)
{
    struct world w;
    world_open(&w);
    vow_error *e = vow_error_new(w.loop, VOW_EIO, "x");
    CHECK_UINT_EQ(vow_error_count(e), 0);
    CHECK_PTR_EQ(vow_error_at(e, 0), NULL);
    vow_error_unref(e);
    world_close(&w);
}

TEST(error, retry_after_is_kept)
{
    struct world w;
    world_open(&w);
    vow_error *e = vow_error_new(w.loop, VOW_EAGAIN, "later");
    CHECK_UINT_EQ(vow_error_retry_after_ms(e), 0);
    vow_error_set_retry_after_ms(e, 1500);
    CHECK_UINT_EQ(vow_error_retry_after_ms(e), 1500);
    vow_error_unref(e);
    world_close(&w);
}

TEST(error, a_long_message_is_kept_at_least_at_its_start)
{
    struct world w;
    world_open(&w);
    static char text[20001];
    memset(text, 'm', sizeof(text) - 1);
    vow_error *e = vow_error_new(w.loop, VOW_EIO, "%s", text);
    CHECK(strlen(vow_error_message(e)) >= 200);
    CHECK(strlen(vow_error_message(e)) < sizeof(text));
    CHECK_INT_EQ(vow_error_message(e)[199], 'm');
    vow_error_unref(e);
    world_close(&w);
}

/* ---- causes ------------------------------------------------------------- */

TEST(error, keeps_its_cause_alive_and_finds_the_first)
{
    struct world w;
    world_open(&w);
    vow_error *root = vow_error_new(w.loop, VOW_EIO, "root");
    vow_error *mid = vow_error_wrap(w.loop, VOW_EBUSY, root, "mid %d", 1);
    vow_error *top = vow_error_wrap(w.loop, VOW_ECANCELED, mid, "top");
    vow_error_unref(root);
    vow_error_unref(mid);
    CHECK_PTR_EQ(vow_error_cause(top), mid);
    CHECK_PTR_EQ(vow_error_cause(mid), root);
    CHECK_PTR_EQ(vow_error_root(top), root);
    CHECK_PTR_EQ(vow_error_root(root), root);
    CHECK_STR_EQ(vow_error_message(vow_error_root(top)), "root");
    vow_error_unref(top);
    world_close(&w);
}

TEST(error, may_be_the_cause_of_many)
{
    struct world w;
    world_open(&w);
    vow_error *root = vow_error_new(w.loop, VOW_EIO, "root"), *e[10];
    for (int i = 0; i < 10; i++)
        e[i] = vow_error_wrap(w.loop, VOW_EBUSY, root, "number %d", i);
    vow_error_unref(root);
    for (int i = 0; i < 10; i++) {
        CHECK_STR_EQ(vow_error_message(vow_error_cause(e[i])), "root");
        vow_error_unref(e[i]);
    }
    world_close(&w);
}

TEST(error, causes_a_million_deep_are_found_and_freed)
{
    struct world w;
    world_open(&w);
    vow_error *root = vow_error_new(w.loop, VOW_EIO, "root"), *e = root;
    for (int i = 0; i < 1000000; i++) {
        vow_error *next = vow_error_wrap(w.loop, VOW_EBUSY, e, "level");
        vow_error_unref(e);
        e = next;
    }
    CHECK_PTR_EQ(vow_error_root(e), root);
    vow_error_unref(e);
    world_close(&w);
}

/* ---- one line ----------------------------------------------------------- */

static vow_error *no_answer(vow_loop *loop)
{
    vow_error *disk =
        vow_error_new_at("disk.c:7", loop, VOW_EIO, NULL, "disk gone");
    vow_error *e =
        vow_error_new_at("client.c:12", loop, VOW_ETIMEDOUT, disk, "no answer");
    vow_error_unref(disk);
    return e;
}

static const char no_answer_line[] =
    "ETIMEDOUT: no answer (client.c:12), because EIO: disk gone (disk.c:7)";

TEST(error, describes_itself_and_its_causes_in_one_line)
{
    struct world w;
    world_open(&w);
    vow_error *e = no_answer(w.loop);
    char text[200];
    size_t n = vow_error_describe(e, text, sizeof(text));
    CHECK_STR_EQ(text, no_answer_line);
    CHECK_UINT_EQ(n, strlen(no_answer_line));
    vow_error_unref(e);
    world_close(&w);
}

TEST(error, description_is_cut_as_snprintf_does_at_every_length)
{
    struct world w;
    world_open(&w);
    vow_error *e = no_answer(w.loop);
    size_t whole = strlen(no_answer_line);
    for (size_t size = 1; size <= whole + 1; size++) {
        char text[200];
        memset(text, '#', sizeof(text));
        CHECK_UINT_EQ(vow_error_describe(e, text, size), whole);
        CHECK_MEM_EQ(text, no_answer_line, size - 1);
        CHECK_INT_EQ(text[size - 1], '\0');
        CHECK_INT_EQ(text[size], '#');
    }
    CHECK_UINT_EQ(vow_error_describe(e, NULL, 0), whole);
    vow_error_unref(e);
    world_close(&w);
}

/* ---- lifetimes ---------------------------------------------------------- */

static vow_next keep_error(vow_error *e, void *user)
{
    *(vow_error **)user = vow_error_ref(e);
    return vow_ok(vow_nothing());
}

TEST(error, kept_by_a_handler_outlives_its_promise)
{
    struct world w;
    world_open(&w);
    vow_error *kept = NULL;
    vow_future *f =
        vow_rejected(w.loop, vow_error_new(w.loop, VOW_EIO, "mine"));
    vow_future_unref(vow_catch(f, keep_error, &kept));
    vow_future_unref(f);
    world_run(&w);
    CHECK_STR_EQ(vow_error_message(kept), "mine");
    vow_error_unref(kept);
    world_close(&w);
}

TEST(error, may_be_dropped_after_the_loop_was_closed)
{
    struct world w;
    world_open(&w);
    vow_error *e = no_answer(w.loop);
    vow_bytes *b;
    CHECK_INT_EQ(vow_bytes_new(w.loop, "abc", 4, &b), 0);
    vow_future *f = vow_resolved(w.loop, vow_bytes_value(vow_bytes_ref(b)));
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    vow_error_unref(e);
    vow_future_unref(f);
    vow_bytes_unref(b);
    world_close_dirty(&w);
}

struct maker {
    vow_loop *loop;
    vow_error *made[500];
    vow_bytes *bytes[500];
};

static void *make_elsewhere(void *arg)
{
    struct maker *m = arg;
    for (int i = 0; i < 500; i++) {
        m->made[i] = vow_error_new(m->loop, VOW_EIO, "thread %d", i);
        CHECK_INT_EQ(vow_bytes_new(m->loop, "abc", 4, &m->bytes[i]), 0);
    }
    return NULL;
}

TEST(error, errors_and_bytes_may_be_made_on_other_threads)
{
    struct world w;
    world_open(&w);
    struct maker m[2];
    pthread_t threads[2];
    for (int t = 0; t < 2; t++) {
        m[t].loop = w.loop;
        CHECK_INT_EQ(pthread_create(&threads[t], NULL, make_elsewhere, &m[t]),
                     0);
    }
    for (int t = 0; t < 2; t++) {
        CHECK_INT_EQ(pthread_join(threads[t], NULL), 0);
        CHECK_STR_EQ(vow_error_message(m[t].made[499]), "thread 499");
        for (int i = 0; i < 500; i++) {
            vow_error_unref(m[t].made[i]);
            vow_bytes_unref(m[t].bytes[i]);
        }
    }
    world_close(&w);
}
