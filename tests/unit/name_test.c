/* SPDX-License-Identifier: MIT */
/* name_test.c - names of work. */
#include "harness.h"

#include <string.h>
#include <vow.h>

TEST(name, fields_go_in_with_their_lengths)
{
    vow_field ab_c[] = {vow_field_text("ab"), vow_field_text("c")};
    vow_field a_bc[] = {vow_field_text("a"), vow_field_text("bc")};
    vow_field abc[] = {vow_field_text("abc"), vow_field_text("")};
    vow_name x = vow_name_make(NULL, ab_c, 2);
    vow_name y = vow_name_make(NULL, a_bc, 2);
    vow_name z = vow_name_make(NULL, abc, 2);
    vow_name one = vow_name_make(NULL, abc, 1);
    vow_name text = vow_name_of("abc");
    CHECK(!vow_name_equal(&x, &y));
    CHECK(!vow_name_equal(&x, &z));
    CHECK(!vow_name_equal(&z, &one));
    CHECK(vow_name_equal(&one, &text));
}

TEST(name, a_name_stays_what_it_is_from_release_to_release)
{
    char text[VOW_NAME_TEXT];
    vow_name n = vow_name_of("report:2026-11");
    CHECK_STR_EQ(vow_name_text(&n, text),
                 "RM0EB-cInZcXKaRKS8ENwC8aOiDvVK6xwNMr1VJnH_0");
}

TEST(name, a_key_makes_other_names)
{
    vow_name_key key = {.size = 32, .bytes = "0123456789abcdef0123456789abcde"};
    vow_name_key other = {.size = 32,
                          .bytes = "X123456789abcdef0123456789abcde"};
    vow_name_key short_key = {.size = 15, .bytes = "too short"};
    vow_field f = vow_field_text("x");
    vow_name open = vow_name_make(NULL, &f, 1);
    vow_name keyed = vow_name_make(&key, &f, 1);
    vow_name others = vow_name_make(&other, &f, 1);
    vow_name refused = vow_name_make(&short_key, &f, 1);
    CHECK(!vow_name_equal(&open, &keyed));
    CHECK(!vow_name_equal(&others, &keyed));
    CHECK(vow_name_equal(&open, &refused));
}

TEST(name, a_step_depends_on_its_parent_and_is_no_plain_name)
{
    vow_name a = vow_name_of("a"), b = vow_name_of("b");
    vow_field f = vow_field_text("sort");
    vow_name a_sort = vow_name_step(NULL, &a, &f, 1);
    vow_name b_sort = vow_name_step(NULL, &b, &f, 1);
    vow_field both[] = {{a.hash, sizeof(a.hash)}, f};
    vow_name plain = vow_name_make(NULL, both, 2);
    CHECK(!vow_name_equal(&a_sort, &b_sort));
    CHECK(!vow_name_equal(&a_sort, &plain));
    vow_name again = vow_name_step(NULL, &a, &f, 1);
    CHECK(vow_name_equal(&a_sort, &again));
}

TEST(name, the_printed_form_reads_back_and_nothing_else_does)
{
    uint64_t seed = test_seed();
    for (int i = 0; i < 1000; i++) {
        uint64_t number = test_random(&seed);
        vow_field f = {&number, sizeof(number)};
        vow_name n = vow_name_make(NULL, &f, 1), back;
        char text[VOW_NAME_TEXT];
        CHECK_UINT_EQ(strlen(vow_name_text(&n, text)), VOW_NAME_TEXT - 1);
        CHECK(vow_name_parse(text, &back));
        CHECK(vow_name_equal(&n, &back));
        text[number % (VOW_NAME_TEXT - 1)] = "+/= \n"[number % 5];
        CHECK(!vow_name_parse(text, &back));
    }
    vow_name none;
    CHECK(!vow_name_parse("", &none));
    CHECK(!vow_name_parse("short", &none));
    vow_name n = vow_name_of("x");
    char text[VOW_NAME_TEXT];
    (void)vow_name_text(&n, text);
    text[VOW_NAME_TEXT - 2] = text[VOW_NAME_TEXT - 2] == 'B' ? 'D' : 'B';
    CHECK(!vow_name_parse(text, &none)); /* bits that mean nothing */
}
