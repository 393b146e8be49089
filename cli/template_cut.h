/* SPDX-License-Identifier: MIT */
/* template_cut.h - cuts a word of a template into text and placeholders. */
#ifndef VOW_CLI_TEMPLATE_CUT_H
#define VOW_CLI_TEMPLATE_CUT_H

#include "template.h"

enum source { LITERAL, ITEMS, FIELD, SEQ, SLOT };

struct piece {
    enum source source;
    struct span text;        /* as written by the user */
    const char *how;         /* the ending: "", ".", "/", "//", "/." */
    size_t field;            /* from 0; SIZE_MAX: {0}, an error */
    const struct span *near; /* column meant by a misspelled name, or NULL */
    size_t hole;             /* index of the hole, for template.c */
    size_t param;            /* index of the parameter, for template.c */
};

struct pieces {
    struct piece *at;
    size_t n;
    size_t room;
};

/* Adds the pieces of a word. */
void template_cut(struct pieces *into, struct span word,
                  const struct template_opts *o);
struct piece *pieces_add(struct pieces *into, struct piece piece);

#endif
