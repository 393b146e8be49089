/* SPDX-License-Identifier: MIT */
/* shell_form.c - writes the values of a job into a script.
 *
 * HOW   A value reaches the script as a positional parameter, quoted as the
 *       quotes around the placeholder require, so that the value arrives as
 *       one word, byte for byte:
 *
 *           bare {}     "${1}"           "a {} b"   "a ${1} b"
 *           $(f {})     $(f "${1}")      'a {} b'   'a '"${1}"' b'
 *
 *       shell_scan.c finds the quotes; shell_guard.c decides which values are
 *       allowed, and explains why a mistake about quotes cannot run a value.
 */
#include "shell_scan.h"

static void show_in_double(struct text *into, struct span value);
static void show_in_single(struct text *into, struct span value);

bool shell_form_fits(enum value_need need, struct span value)
{
    for (size_t i = 0; i < value.n && need != NEED_NOTHING; i++) {
        char c = value.at[i];
        bool digit = c >= '0' && c <= '9';
        if (!digit && !scan_one_of(c, "+-.") &&
            (need == NEED_NUMBER ||
             (!scan_name_char(c) && !scan_one_of(c, "@%=:,/"))))
            return false;
    }
    return need == NEED_NOTHING || value.n > 0;
}

/* Looks for characters that are special for a shell, quotes and blanks first of
 * all. Not enough are = # % ! { } , and ], and a tilde not at the beginning of
 * the word: in a word without blanks they belong to file names and options. So
 * ./my%prog, a=b and c# are run without a shell, and ~/bin/prog and 'A=1 prog'
 * by a shell. */
bool shell_form_wanted(struct span rest, bool begins)
{
    if (begins && rest.n > 0 && rest.at[0] == '~')
        return true;
    for (size_t i = 0; i < rest.n; i++)
        if (scan_one_of(rest.at[i], " \t\n|&;<>()$`\\\"'*?["))
            return true;
    return false;
}

/* ---- writing ------------------------------------------------------------- */

void shell_form_write(struct text *into, enum hole_place place, size_t first,
                      size_t n)
{
    switch (place) {
    case HOLE_WORDS:
    case HOLE_BARE:
        for (size_t i = 0; i < n; i++)
            text_addf(into, "%s\"${%zu}\"", i > 0 ? " " : "", first + i);
        break;
    case HOLE_DOUBLE:
    case HOLE_MATH:
        text_addf(into, "${%zu}", first);
        break;
    case HOLE_SINGLE:
        text_addf(into, "'\"${%zu}\"'", first);
        break;
    case HOLE_COMMENT:
        break;
    }
}

void shell_form_show(struct text *into, const struct hole *hole,
                     struct span value)
{
    switch (hole->place) {
    case HOLE_WORDS:
    case HOLE_BARE:
        if (hole->place == HOLE_WORDS && !hole->redirected) {
            text_add_quoted(into, value);
            break;
        }
        text_add_str(into, "'"); /* as in a$b{}, ~{}, v{}= */
        show_in_single(into, value);
        text_add_str(into, "'");
        break;
    case HOLE_DOUBLE:
        show_in_double(into, value);
        break;
    case HOLE_SINGLE:
        show_in_single(into, value);
        break;
    case HOLE_MATH:
        text_add(into, value.at, value.n);
        break;
    case HOLE_COMMENT:
        break;
    }
}

/* Writes a value within "...": unchanged, unless the value has a character that
 * is special there or would lengthen the name of a variable before the value;
 * then the quotes are closed around the value. */
static void show_in_double(struct text *into, struct span value)
{
    bool plain = into->n == 0 || !scan_name_char(into->at[into->n - 1]);
    for (size_t i = 0; i < value.n && plain; i++)
        plain = !scan_one_of(value.at[i], "\"$`\\!");
    if (plain) {
        text_add(into, value.at, value.n);
        return;
    }
    text_add_str(into, "\"'");
    show_in_single(into, value);
    text_add_str(into, "'\"");
}

static void show_in_single(struct text *into, struct span value)
{
    for (size_t i = 0; i < value.n; i++) {
        if (value.at[i] == '\'')
            text_add_str(into, "'\\''");
        else
            text_add(into, value.at + i, 1);
    }
}
