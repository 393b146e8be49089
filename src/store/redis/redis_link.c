/* SPDX-License-Identifier: MIT */
/* redis_link.c - one connection to a Redis: greeting, commands, answers.
 *
 * WHY   Commands and messages share a connection, so that a claim that waits
 *       and the message that ends the wait come in one order. All failures have
 *       one end: all commands are answered, then the owner is told why.
 * HOW   When the stream is open the whole greeting leaves at once: HELLO with
 *       the password, SELECT, ROLE, EVAL of nothing, SUBSCRIBE. The connection
 *       is ready when the last command of the greeting was answered. Answers
 *       come in the order of commands: a list of the unanswered commands
 *       suffices. A push that confirms (SUBSCRIBE) comes in this order, too.
 *       Scripts are called by the hash of the text. A server that does not have
 *       the script says NOSCRIPT; the call is sent again with the text, which
 *       loads the script for all clients.
 *       Silence: an answer is awaited, and for timeout_ms none came. Bytes of
 *       a command and of the answer give more time, a millisecond per KiB;
 *       bytes of pushes give none. The length of an answer is limited by the
 *       command.
 * INVARIANTS
 *   K1  every command is answered once; before on_end
 *   K2  nothing is called after vow__link_close(), or on_end
 *   K3  the timer of silence is armed exactly while an answer is awaited
 *   K4  the outermost function of the connection on the stack frees the
 *       connection
 * LIMITS  A call that meets NOSCRIPT takes effect behind calls that were sent
 *       later.
 * THREADS  loop thread only.
 */
#include "store/redis/redis_link.h"
#include "base/sm.h"
#include "vow/uv.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { OPENING, GREETING, READY, ENDED };
static const uint8_t moves[] = {
    [OPENING] = VOW__TO(GREETING) | VOW__TO(ENDED),
    [GREETING] = VOW__TO(READY) | VOW__TO(ENDED),
    [READY] = VOW__TO(ENDED),
    [ENDED] = 0,
};

enum {
    SPARES = 64,
    SCRATCH = 64 * 1024,
    BYTES_PER_MS = 1024,
    SCRIPT_BYTES = 1024 * 1024, /* of an answer without a result */
    PLAIN_BYTES = 16 * 1024 * 1024
};

/* A command that waits for its answer. */
struct sent {
    vow_link link;
    vow__link_fn done; /* NULL: our own */
    void *user;
    size_t bytes;
    const struct vow__buf *tail; /* NULL: it is no script */
    uint16_t script;
    bool asking;  /* behind ASKING */
    bool is_text; /* it was sent with its text */
    bool is_role;
    size_t tail_words;
};

static int start(struct vow__link *l, const struct vow__link_opts *opts);
static void on_open(void *user);
static void on_bytes(const char *bytes, size_t n, void *user);
static size_t answer_bytes(const struct vow__link *l);
static void on_stream_end(int code, const char *why, void *user);
static void take_push(struct vow__link *l, const struct vow__resp *push);
static void take_answer(struct vow__link *l, const struct vow__resp *v);
static bool send_text(struct vow__link *l, struct sent *s);
static void take_role(struct vow__link *l, const struct vow__resp *v);
static void await(struct vow__link *l, struct sent *s);
static int post_eval(struct vow__link *l, struct sent *s);
static void put_eval(struct vow__link *l, const struct sent *s);
static struct sent *sent_new(struct vow__link *l, vow__link_fn done,
                             void *user);
static void sent_free(struct vow__link *l, struct sent *s);
static void end(struct vow__link *l, int code);
static void watch(struct vow__link *l);
static void on_silence(void *user);
static void on_pulse(void *user);
static void on_broken(void *user);
static void enter(struct vow__link *l);
static void leave(struct vow__link *l);

/* ---- opening ------------------------------------------------------------ */

int vow__link_open(vow_loop *loop, const struct vow__link_opts *opts,
                   const struct vow__link_events *events,
                   struct vow__link **ret_link)
{
    struct vow_alloc alloc = *vow_loop_alloc(loop);
    struct vow__link *l = vow__mem_zero(&alloc, sizeof(*l));
    if (l == NULL)
        return VOW_ENOMEM;
    l->loop = loop;
    l->alloc = alloc;
    l->events = *events;
    l->timeout_ms = opts->timeout_ms;
    l->pulse_ms = opts->ask_role_ms;
    l->scripts = opts->scripts;
    l->bare = opts->bare;
    l->value_bytes = opts->limits.bytes;
    vow__command_init(&l->scratch, &alloc);
    vow__command_init(&l->greeting, &alloc);
    vow__link_name(&opts->to, l->name, sizeof(l->name));
    int rc = start(l, opts);
    if (rc < 0) {
        l->state = ENDED;
        enter(l);
        l->closed = true;
        leave(l);
        return rc;
    }
    *ret_link = l;
    return 0;
}

static int start(struct vow__link *l, const struct vow__link_opts *opts)
{
    int rc = vow__parser_new(&l->alloc, &opts->limits, &l->parser);
    if (rc == 0)
        rc = vow__greet_make(l, opts);
    return rc < 0 ? rc
                  : vow__stream_open(l->loop, &opts->to,
                                     &(const struct vow__stream_events){
                                         .on_open = on_open,
                                         .on_bytes = on_bytes,
                                         .on_end = on_stream_end,
                                         .user = l,
                                     },
                                     &l->stream);
}

/* "HOST:PORT", or the path of a socket. */
void vow__link_name(const struct vow__stream_opts *to, char *name, size_t size)
{
    if (to->host == NULL)
        (void)snprintf(name, size, "%s", to->path);
    else
        (void)snprintf(name, size,
                       strchr(to->host, ':') != NULL ? "[%s]:%u" : "%s:%u",
                       to->host, (unsigned)to->port);
}

static void on_open(void *user)
{
    struct vow__link *l = user;
    enter(l);
    vow__sm_move(&l->state, GREETING, moves);
    l->moved = true; /* silence counts from now */
    int rc = vow__stream_send(l->stream, l->greeting.bytes, l->greeting.n);
    vow__buf_fini(&l->greeting); /* it has the password */
    if (rc < 0)
        vow__link_fail(l, false, "%s: out of memory", l->name);
    else
        watch(l);
    leave(l);
}

void vow__link_greeted(struct vow__link *l)
{
    vow__sm_move(&l->state, READY, moves);
    watch(l);
    if (l->pulse_ms > 0)
        vow_call_weakly_at(&l->pulse, l->loop,
                           vow_loop_due_ns(l->loop, l->pulse_ms), on_pulse, l);
    l->events.on_ready(&l->server, l->events.user);
}

/* ---- what comes --------------------------------------------------------- */

static void on_bytes(const char *bytes, size_t n, void *user)
{
    struct vow__link *l = user;
    const struct vow__resp *v;
    enter(l);
    int rc = vow__parser_feed(l->parser, bytes, n);
    while (rc >= 0 && l->state != ENDED) {
        vow__parser_expect(l->parser, answer_bytes(l));
        rc = vow__parser_next(l->parser, &v);
        if (rc <= 0)
            break;
        if (v->kind == VOW__RESP_PUSH)
            take_push(l, v);
        else if (l->state == GREETING)
            vow__greet_take(l, v);
        else if (l->state == READY)
            take_answer(l, v);
    }
    if (l->state != ENDED && rc == VOW_ENOMEM)
        vow__link_fail(l, false, "%s: out of memory", l->name);
    else if (l->state != ENDED && rc < 0)
        vow__link_fail(l, true, "%s does not speak as a Redis: %s", l->name,
                       vow__parser_why(l->parser));
    else if (l->state != ENDED && l->moved)
        watch(l);
    leave(l);
}

/* What the oldest command can be answered with. */
static size_t answer_bytes(const struct vow__link *l)
{
    if (l->waiting == NULL)
        return SCRIPT_BYTES; /* of the greeting */
    const struct sent *s = VOW__OUTER(l->waiting, struct sent, link);
    if (s->tail == NULL)
        return PLAIN_BYTES;
    return s->script == VOW__LUA_CLAIM || s->script == VOW__LUA_COMMIT ||
                   s->script == VOW__LUA_READ
               ? l->value_bytes
               : SCRIPT_BYTES;
}

static void on_stream_end(int code, const char *why, void *user)
{
    struct vow__link *l = user;
    enter(l);
    vow__link_fail(l, code == UV_EPROTO, "%s", why);
    leave(l);
}

static void take_push(struct vow__link *l, const struct vow__resp *push)
{
    if (l->state == GREETING)
        vow__greet_take(l, push);
    else
        l->events.on_push(push, l->events.user);
}

static void take_answer(struct vow__link *l, const struct vow__resp *v)
{
    vow_link *first = vow__list_take(&l->waiting);
    if (first == NULL) {
        vow__link_fail(l, false, "%s answered what nobody asked", l->name);
        return;
    }
    struct sent *s = VOW__OUTER(first, struct sent, link);
    l->busy -= s->bytes;
    l->asked -= s->done != NULL;
    l->moved = true;
    if (s->tail != NULL && !s->is_text && v->kind == VOW__RESP_ERROR &&
        vow__error_is(v, "NOSCRIPT") && send_text(l, s))
        return;
    vow__link_fn done = s->done;
    void *user = s->user;
    bool is_role = s->is_role;
    sent_free(l, s);
    if (is_role)
        take_role(l, v);
    if (done != NULL)
        done(0, v, user);
}

/* False: there is no memory, and the error is the answer. */
static bool send_text(struct vow__link *l, struct sent *s)
{
    s->is_text = true;
    return post_eval(l, s) == 0;
}

static void take_role(struct vow__link *l, const struct vow__resp *v)
{
    l->role_asked = false;
    if (l->bare || !l->server.master ||
        vow__resp_is(vow__resp_at(v, 0), "master"))
        return;
    if (v->kind == VOW__RESP_LIST)
        vow__link_fail(l, false, "%s is no master any more", l->name);
}

/* ---- what goes ---------------------------------------------------------- */

void vow__link_send(struct vow__link *l, const struct vow__buf *c,
                    vow__link_fn done, void *user)
{
    if (l->state == ENDED) {
        done(VOW_ESTORE, NULL, user);
        return;
    }
    VOW__ASSERT(l->state == READY);
    struct sent *s = c->code != 0 ? NULL : sent_new(l, done, user);
    if (s == NULL) {
        done(VOW_ENOMEM, NULL, user);
        return;
    }
    s->bytes = c->n;
    if (vow__stream_send(l->stream, c->bytes, c->n) < 0) {
        sent_free(l, s);
        done(VOW_ENOMEM, NULL, user);
        return;
    }
    await(l, s);
}

void vow__link_asking(struct vow__link *l)
{
    l->asking = true;
}

void vow__link_eval(struct vow__link *l, enum vow__script script,
                    const struct vow__buf *tail, size_t tail_words,
                    vow__link_fn done, void *user)
{
    bool asking = l->asking;
    l->asking = false;
    if (l->state == ENDED) {
        done(VOW_ESTORE, NULL, user);
        return;
    }
    VOW__ASSERT(l->state == READY);
    struct sent *s = tail->code != 0 ? NULL : sent_new(l, done, user);
    if (s == NULL) {
        done(VOW_ENOMEM, NULL, user);
        return;
    }
    s->script = (uint16_t)script;
    s->tail = tail;
    s->tail_words = tail_words;
    s->asking = asking;
    if (post_eval(l, s) < 0) {
        sent_free(l, s);
        done(VOW_ENOMEM, NULL, user);
    }
}

/* It has left: wait for its answer. */
static void await(struct vow__link *l, struct sent *s)
{
    bool first = l->waiting == NULL;
    bool first_asked = s->done != NULL && l->asked++ == 0;
    l->busy += s->bytes;
    vow__list_push(&l->waiting, &s->link);
    if (first) {
        l->last_ns = vow_loop_now_ns(l->loop);
    }
    if (first || first_asked)
        watch(l);
}

/* The tail is not copied once more to go in one piece. If there is no memory
 * for it behind its beginning, the link is of no more use. */
static int post_eval(struct vow__link *l, struct sent *s)
{
    struct vow__buf *c = &l->scratch;
    struct sent *ask = s->asking ? sent_new(l, NULL, NULL) : NULL;
    if (s->asking && ask == NULL)
        return VOW_ENOMEM;
    put_eval(l, s);
    int rc = c->code;
    if (rc == 0)
        rc = vow__stream_send(l->stream, c->bytes, c->n);
    s->bytes = c->n + s->tail->n;
    if (c->code != 0 || c->room > SCRATCH)
        vow__buf_fini(c);
    if (rc < 0) {
        if (ask != NULL)
            sent_free(l, ask);
        return rc;
    }
    if (ask != NULL)
        await(l, ask);
    await(l, s);
    if (vow__stream_send(l->stream, s->tail->bytes, s->tail->n) < 0)
        vow_call_soon(&l->broken, l->loop, on_broken, l);
    return 0;
}

static void put_eval(struct vow__link *l, const struct sent *s)
{
    struct vow__buf *c = &l->scratch;
    vow__buf_clear(c);
    if (s->asking) {
        vow__command_begin(c, 1);
        vow__command_text(c, "ASKING");
    }
    vow__command_begin(c, 2 + s->tail_words);
    vow__command_text(c, s->is_text ? "EVAL" : "EVALSHA");
    vow__command_text(c, s->is_text ? l->scripts[s->script].text
                                    : l->scripts[s->script].sha);
}

static struct sent *sent_new(struct vow__link *l, vow__link_fn done, void *user)
{
    struct sent *s;
    vow_link *spare = vow__list_take(&l->spare);
    if (spare != NULL) {
        l->n_spare--;
        s = VOW__OUTER(spare, struct sent, link);
    } else {
        s = vow__mem_new(&l->alloc, sizeof(*s));
        if (s == NULL)
            return NULL;
    }
    *s = (struct sent){.done = done, .user = user};
    return s;
}

static void sent_free(struct vow__link *l, struct sent *s)
{
    if (l->n_spare < SPARES) {
        l->n_spare++;
        vow__list_push(&l->spare, &s->link);
    } else {
        vow__mem_free(&l->alloc, s, sizeof(*s));
    }
}

size_t vow__link_busy(const struct vow__link *l)
{
    return l->busy;
}

const char *vow__link_why(const struct vow__link *l)
{
    return l->why;
}

/* ---- silence ------------------------------------------------------------ */

/* Keeps K3. Who waits for an answer keeps the loop running; we alone do not. */
static void watch(struct vow__link *l)
{
    if (l->moved) {
        l->moved = false;
        l->last_ns = vow_loop_now_ns(l->loop);
    }
    if (l->state != GREETING && l->waiting == NULL) {
        (void)vow_call_stop(&l->silence);
        return;
    }
    size_t bytes = vow__parser_partial(l->parser);
    if (l->waiting != NULL)
        bytes += VOW__OUTER(l->waiting, struct sent, link)->bytes;
    uint64_t due_ns =
        l->last_ns + (l->timeout_ms + bytes / BYTES_PER_MS) * 1000000;
    if (l->asked > 0)
        vow_call_at(&l->silence, l->loop, due_ns, on_silence, l);
    else
        vow_call_weakly_at(&l->silence, l->loop, due_ns, on_silence, l);
    l->due_ns = due_ns;
}

static void on_silence(void *user)
{
    struct vow__link *l = user;
    uint64_t was_due_ns = l->due_ns;
    enter(l);
    vow__stream_look(l->stream); /* we may not have run for so long */
    if (l->state != ENDED)
        watch(l);
    if (vow_call_pending(&l->silence) && l->due_ns == was_due_ns)
        vow__link_fail(l, false, "%s did not answer for %llu ms", l->name,
                       (unsigned long long)l->timeout_ms);
    leave(l);
}

/* The server is asked whether it is a master still, and so whether it is there
 * at all. */
static void on_pulse(void *user)
{
    static const char role[] = "*1\r\n$4\r\nROLE\r\n";
    static const char ping[] = "*1\r\n$4\r\nPING\r\n";
    struct vow__link *l = user;
    vow_call_weakly_at(&l->pulse, l->loop,
                       vow_loop_due_ns(l->loop, l->pulse_ms), on_pulse, l);
    struct sent *s = l->role_asked ? NULL : sent_new(l, NULL, NULL);
    if (s == NULL)
        return;
    s->bytes = sizeof(role) - 1;
    s->is_role = true;
    if (vow__stream_send(l->stream, l->bare ? ping : role, s->bytes) < 0) {
        sent_free(l, s);
        return;
    }
    l->role_asked = true;
    await(l, s);
}

/* ---- the end ------------------------------------------------------------ */

static void on_broken(void *user)
{
    struct vow__link *l = user;
    enter(l);
    vow__link_fail(l, false, "%s: out of memory", l->name);
    leave(l);
}

void vow__link_fail(struct vow__link *l, bool for_good, const char *format, ...)
{
    va_list args;
    if (l->state == ENDED)
        return;
    va_start(args, format);
    (void)vsnprintf(l->why, sizeof(l->why), format, args);
    va_end(args);
    end(l, VOW_EUNSURE);
    if (!l->closed) /* by who was answered */
        l->events.on_end(for_good, l->why, l->events.user);
}

void vow__link_close(struct vow__link *l, int code)
{
    enter(l);
    l->closed = true;
    if (l->state != ENDED)
        end(l, code);
    leave(l);
}

/* Keeps K1. */
static void end(struct vow__link *l, int code)
{
    vow_link *first;
    vow__sm_move(&l->state, ENDED, moves);
    (void)vow_call_stop(&l->silence);
    (void)vow_call_stop(&l->pulse);
    (void)vow_call_stop(&l->broken);
    vow__stream_close(l->stream);
    l->stream = NULL;
    l->busy = 0;
    l->asked = 0;
    while ((first = vow__list_take(&l->waiting)) != NULL) {
        struct sent *s = VOW__OUTER(first, struct sent, link);
        vow__link_fn done = s->done;
        void *user = s->user;
        sent_free(l, s);
        if (done != NULL)
            done(code, NULL, user);
    }
}

static void enter(struct vow__link *l)
{
    l->inside++;
}

/* Keeps K4. */
static void leave(struct vow__link *l)
{
    vow_link *spare;
    if (--l->inside > 0 || !l->closed)
        return;
    struct vow_alloc alloc = l->alloc;
    while ((spare = vow__list_take(&l->spare)) != NULL)
        vow__mem_free(&alloc, VOW__OUTER(spare, struct sent, link),
                      sizeof(struct sent));
    vow__parser_free(l->parser);
    vow__buf_fini(&l->greeting);
    vow__buf_fini(&l->scratch);
    vow__mem_free(&alloc, l, sizeof(*l));
}
