/* SPDX-License-Identifier: MIT */
/* etcd_line.c - lines of "word value", which the values of keys are made of.
 *
 * WHY   People read them with etcdctl, and others may write below the prefix:
 *       nothing in them is taken for granted.
 * HOW   A value is the rest of its line behind one blank. Texts have their
 *       backslashes and ends of lines escaped.
 * THREADS  any.
 */
#include "store/etcd/etcd_internal.h"

#include <string.h>

bool vow__line_take(struct vow__lines *r, struct vow__line *ret_line)
{
    if (r->n == 0)
        return false;
    const char *end = memchr(r->at, '\n', r->n);
    size_t n = end == NULL ? r->n : (size_t)(end - r->at);
    const char *blank = memchr(r->at, ' ', n);
    size_t word_n = blank == NULL ? n : (size_t)(blank - r->at);
    *ret_line = (struct vow__line){.word = r->at, .word_n = word_n};
    ret_line->text = r->at + (blank == NULL ? n : word_n + 1);
    ret_line->n = blank == NULL ? 0 : n - word_n - 1;
    r->at += end == NULL ? n : n + 1;
    r->n -= end == NULL ? n : n + 1;
    return n > 0;
}

bool vow__line_is(const struct vow__line *l, const char *word)
{
    return l->word_n == strlen(word) && memcmp(l->word, word, l->word_n) == 0;
}

bool vow__line_number(const struct vow__line *l, uint64_t *ret_number)
{
    uint64_t number = 0;
    if (l->n == 5 && memcmp(l->text, "never", 5) == 0) {
        *ret_number = UINT64_MAX;
        return true;
    }
    for (size_t i = 0; i < l->n; i++) {
        uint64_t digit = (uint64_t)(unsigned char)l->text[i] - '0';
        if (digit > 9 || number > (UINT64_MAX - digit) / 10)
            return false;
        number = 10 * number + digit;
    }
    *ret_number = number;
    return l->n > 0;
}

void vow__line_text(const struct vow__line *l, char to[VOW_LABEL_MAX + 1])
{
    size_t n = 0;
    for (size_t i = 0; i < l->n && n < VOW_LABEL_MAX; i++) {
        char c = l->text[i];
        if (c == '\\' && i + 1 < l->n)
            c = l->text[++i] == 'n' ? '\n' : l->text[i];
        if (c != 0)
            to[n++] = c;
    }
    to[n] = 0;
}

void vow__line_write(struct vow__buf *value, const char *word, const char *text)
{
    size_t n = text == NULL ? 0 : strnlen(text, VOW_LABEL_MAX);
    if (n == 0)
        return;
    vow__buf_print(value, "%s ", word);
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\\' || text[i] == '\n')
            vow__buf_text(value, text[i] == '\n' ? "\\n" : "\\\\");
        else
            vow__buf_add(value, &text[i], 1);
    }
    vow__buf_text(value, "\n");
}
