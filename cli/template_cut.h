/* SPDX-License-Identifier: MIT */
/* template_cut.h - a word of a template cut into text and placeholders. */
#ifndef VOW_CLI_TEMPLATE_CUT_H
#define VOW_CLI_TEMPLATE_CUT_H

#include "template.h"

enum source { LITERAL, ITEMS, FIELD, SEQ, SLOT };

struct piece {
    enum source source;
    struct span text;        /* as it was written */
    const char *how;         /* the ending: "", ".", "/", "//", "/." */
    size_t field;            /* from 0; SIZE_MAX: {0}, which there is not */
    const struct span *near; /* the column that is nearly named; NULL: it is */
    size_t hole;             /* for template.c: of the script's */
    size_t param;            /* and of its parameters */
};

struct pieces {
    struct piece *at;
    size_t n;
    size_t room;
};

/* Adds the pieces of that word. */
void template_cut(struct pieces *into, struct span word,
                  const struct template_opts *o);
struct piece *pieces_add(struct pieces *into, struct piece piece);

#endif
