/* SPDX-License-Identifier: MIT */
/* error.c - codes, their texts, and counted errors.
 *
 * WHY   A rejection has a message, the place of its promise and a cause, also
 *       when no memory is left.
 * HOW   A block per error, with the message at its end. Each code has a
 *       constant error, never counted or written, for lack of memory.
 * INVARIANTS
 *   E1  following `cause` to the end gives the first cause
 *   E2  freeing uses no recursion: the dead are chained by `next_dead`
 * THREADS  an error belongs to one thread at a time.
 */
#include "base/error.h"
#include "base/assert.h"

#include <stdio.h>
#include <string.h>
#include <uv.h>

enum { STATIC_REFS = UINT32_MAX };

struct vow_error {
    uint32_t refs; /* STATIC_REFS: constant */
    int code;
    bool told; /* to the unhandled hook */
    uint64_t retry_after_ms;
    vow_error *cause;     /* counted */
    vow_error *next_dead; /* while freeing */
    const char *site;     /* static text or NULL */
    const char *message;  /* behind the struct, or static */
    vow_error **list;     /* counted, behind the struct */
    size_t count;         /* of list */
    struct vow_alloc alloc;
    size_t size; /* of the block */
};

#define CHECK_UV(name, code, text)                                             \
    _Static_assert((code) <= -6001 || (code) == UV_##name, "libuv's value");
/* Codes without a libuv code complete the list. */
#define UV_EBROKEN 0
#define UV_ECYCLE 0
#define UV_EQUEUEFULL 0
#define UV_ENOFIBER 0
#define UV_EALLFAILED 0
#define UV_ECLOSED 0
#define UV_EOPEN 0
#define UV_EDEADLK 0
#define UV_ELOST 0
#define UV_ERETRY 0
#define UV_EUNSURE 0
#define UV_EDOUBT 0
#define UV_ESTORE 0
#define UV_EGAVEUP 0
VOW_ERROR_MAP(CHECK_UV)

static const vow_error constants[] = {
#define CONSTANT(name, value, text)                                            \
    {.refs = STATIC_REFS, .code = (value), .message = (text)},
    VOW_ERROR_MAP(CONSTANT)
#undef CONSTANT
};

static vow_error *error_block_new(const struct vow_alloc *a, const char *site,
                                  int code, size_t extra);
static void error_bury(vow_error *e, vow_error **dead);

const char *vow_error_name(int code)
{
    switch (code) {
    case 0:
        return "OK";
#define NAME(name, value, text)                                                \
    case (value):                                                              \
        return #name;
        VOW_ERROR_MAP(NAME)
#undef NAME
#define NAME(name, text)                                                       \
    case UV_##name:                                                            \
        return #name;
    default:
        break;
    }
    switch (code) {
        UV_ERRNO_MAP(NAME)
#undef NAME
    default:
        return "EUNKNOWN";
    }
}

const char *vow_error_text(int code)
{
    switch (code) {
    case 0:
        return "no error";
#define TEXT(name, value, text)                                                \
    case (value):                                                              \
        return text;
        VOW_ERROR_MAP(TEXT)
#undef TEXT
#define TEXT(name, text)                                                       \
    case UV_##name:                                                            \
        return text;
    default:
        break;
    }
    switch (code) {
        UV_ERRNO_MAP(TEXT)
#undef TEXT
    default:
        return "unknown error";
    }
}

vow_error *vow__error_make(const struct vow_alloc *a, const char *site,
                           int code, vow_error *cause, const char *format,
                           va_list args)
{
    if (code >= 0)
        code = VOW_EINVAL;
    int length = 0;
    if (format != NULL) {
        va_list measure;
        va_copy(measure, args);
        length = vsnprintf(NULL, 0, format, measure);
        va_end(measure);
    }
    size_t room = format == NULL || length < 0 ? 0 : (size_t)length + 1;
    vow_error *e = error_block_new(a, site, code, room);
    if (e == NULL)
        return NULL;
    if (room > 0) {
        char *text = (char *)(e + 1);
        (void)vsnprintf(text, room, format, args);
        e->message = text;
    }
    vow__error_set_cause(e, cause);
    return e;
}

vow_error *vow__error_make_list(const struct vow_alloc *a, const char *site,
                                int code, size_t n)
{
    vow_error *e = error_block_new(a, site, code, n * sizeof(vow_error *));
    if (e == NULL)
        return NULL;
    e->list = (vow_error **)(void *)(e + 1);
    e->count = n;
    memset(e->list, 0, n * sizeof(vow_error *));
    return e;
}

void vow__error_set_at(vow_error *list, size_t index, vow_error *borrowed)
{
    VOW__ASSERT(index < list->count);
    vow_error *old = list->list[index];
    list->list[index] = vow_error_ref(borrowed);
    vow_error_unref(old);
}

void vow__error_set_cause(vow_error *e, vow_error *borrowed)
{
    if (e->refs != STATIC_REFS && e != borrowed)
        e->cause = vow_error_ref(borrowed);
}

vow_error *vow__error_static(int code)
{
    const vow_error *found = &constants[1]; /* VOW_ENOMEM */
    for (size_t i = 0; i < sizeof(constants) / sizeof(constants[0]); i++)
        if (constants[i].code == code)
            found = &constants[i];
    return (vow_error *)(uintptr_t)found;
}

bool vow__error_tell(vow_error *e)
{
    if (e->refs == STATIC_REFS)
        return true;
    bool first = !e->told;
    e->told = true;
    return first;
}

vow_error *vow_error_ref(vow_error *e)
{
    if (e != NULL && e->refs != STATIC_REFS)
        e->refs++;
    return e;
}

vow_error *vow_error_unref(vow_error *e)
{
    vow_error *dead = NULL;
    error_bury(e, &dead);
    while (dead != NULL) {
        e = dead;
        dead = e->next_dead;
        error_bury(e->cause, &dead);
        for (size_t i = 0; i < e->count; i++)
            error_bury(e->list[i], &dead);
        struct vow_alloc a = e->alloc;
        vow__mem_free(&a, e, e->size);
    }
    return NULL;
}

int vow_error_code(const vow_error *e)
{
    return e == NULL ? 0 : e->code;
}

const char *vow_error_message(const vow_error *e)
{
    return e == NULL ? "" : e->message;
}

const char *vow_error_site(const vow_error *e)
{
    return e == NULL || e->site == NULL ? "" : e->site;
}

vow_error *vow_error_cause(const vow_error *e)
{
    return e == NULL ? NULL : e->cause;
}

vow_error *vow_error_root(vow_error *e)
{
    while (e != NULL && e->cause != NULL)
        e = e->cause;
    return e;
}

size_t vow_error_count(const vow_error *e)
{
    return e == NULL ? 0 : e->count;
}

vow_error *vow_error_at(const vow_error *e, size_t index)
{
    return e == NULL || index >= e->count ? NULL : e->list[index];
}

void vow_error_set_retry_after_ms(vow_error *e, uint64_t ms)
{
    if (e != NULL && e->refs != STATIC_REFS)
        e->retry_after_ms = ms;
}

uint64_t vow_error_retry_after_ms(const vow_error *e)
{
    return e == NULL ? 0 : e->retry_after_ms;
}

size_t vow_error_describe(const vow_error *e, char *text, size_t size)
{
    size_t at = 0;
    if (size > 0)
        text[0] = '\0';
    for (const char *joint = ""; e != NULL; e = e->cause) {
        bool fits = at < size;
        int n = snprintf(fits ? text + at : NULL, fits ? size - at : 0,
                         "%s%s: %s%s%s%s", joint, vow_error_name(e->code),
                         e->message, e->site == NULL ? "" : " (",
                         e->site == NULL ? "" : e->site,
                         e->site == NULL ? "" : ")");
        at += n < 0 ? 0 : (size_t)n;
        joint = ", because ";
    }
    return at;
}

static vow_error *error_block_new(const struct vow_alloc *a, const char *site,
                                  int code, size_t extra)
{
    if (extra > SIZE_MAX - sizeof(vow_error))
        return NULL;
    vow_error *e = vow__mem_zero(a, sizeof(*e) + extra);
    if (e == NULL)
        return NULL;
    e->refs = 1;
    e->code = code;
    e->site = site;
    e->message = vow_error_text(code);
    e->alloc = *a;
    e->size = sizeof(*e) + extra;
    return e;
}

/* Drops a reference; an error without references joins the chain (keeps E2). */
static void error_bury(vow_error *e, vow_error **dead)
{
    if (e == NULL || e->refs == STATIC_REFS)
        return;
    VOW__ASSERT(e->refs > 0);
    if (--e->refs > 0)
        return;
    e->next_dead = *dead;
    *dead = e;
}
