/* SPDX-License-Identifier: MIT */
/* Calls that are too much, and messages that nobody wants to hear. */
#include "redis_route_rig.h"

#include <stdlib.h>

/* ---- too much ------------------------------------------------------------ */

enum { MIB = 1024 * 1024 };

static struct route_call *big_call(struct route_rig *r, const char *bytes)
{
    struct route_call *c = rig_next(r);
    struct vow__call *call = vow__call_new(r->redis, VOW__LUA_PEEK);
    CHECK(call != NULL);
    vow__call_key(call, "p:", "a", "");
    vow__call_arg(call, bytes, MIB);
    vow__call_send(call, rig_reply, c);
    return c;
}

/* With the smallest results, 64 MiB. */
static void too_much(bool connected)
{
    struct route_rig r;
    char url[64];
    char *bytes = calloc(1, MIB);
    CHECK(bytes != NULL);
    rig_begin(&r, 1);
    snprintf(url, sizeof(url), "redis://127.0.0.1:%u", r.fakes[0].port);
    CHECK(rig_try_open(&r, url, VOW_REDIS_OPTS(.value_max = 1)));
    if (connected) {
        UNTIL(&r, r.fakes[0].served == 1);
        rig_settle(&r);
    }
    size_t fit = 0;
    while (fit < 70 && !big_call(&r, bytes)->done)
        fit++;
    CHECK(fit >= 63 && fit <= 65);
    CHECK_INT_EQ(r.calls[fit].code, VOW_EAGAIN);
    CHECK_HAS(r.calls[fit].why, "too much waits for it");
    rig_close(&r);
    for (size_t i = 0; i < fit; i++)
        CHECK_INT_EQ(r.calls[i].code, VOW_ECLOSED);
    fake_hang_up(&r.fakes[0]);
    rig_end(&r);
    free(bytes);
}

TEST(redis_route, more_than_fits_is_not_kept_waiting)
{
    too_much(false);
}

TEST(redis_route, more_than_fits_is_not_sent)
{
    too_much(true);
}

/* ---- nobody listens ------------------------------------------------------ */

static void push(struct route_rig *r, const char *text, size_t n)
{
    char head[256];
    const char *channel = vow__redis_channel(r->redis);
    snprintf(head, sizeof(head),
             ">3\r\n$7\r\nmessage\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n",
             strlen(channel), channel, n, text);
    fake_say(fake_last(&r->fakes[0]), head);
}

TEST(redis_route, messages_without_a_listener_do_no_harm)
{
    struct route_rig r;
    char name[VOW_NAME_TEXT];
    char text[128];
    vow_name zero = {{0}};
    rig_begin(&r, 1);
    r.fakes[0].answer = say_tag;
    rig_open(&r);
    r.store->ops->listen(r.store, &(const vow_store_events){.user = NULL});
    CHECK_INT_EQ(rig_ask(&r, "a")->code, 0);
    vow_name_text(&zero, name);
    for (const char *letter = "ASCXGZ"; *letter != 0; letter++) {
        snprintf(text, sizeof(text), "%c%s", *letter, name);
        push(&r, text, strlen(text));
    }
    push(&r, "G0123456789abcdef", 17);
    push(&r, "", 0);
    CHECK_INT_EQ(rig_ask(&r, "b")->code, 0);
    fake_hang_up(&r.fakes[0]); /* and a doubt */
    rig_pass(&r, 100);
    CHECK_INT_EQ(rig_ask(&r, "c")->code, 0);
    CHECK_UINT_EQ(r.doubts, 0);
    rig_end(&r);
}
