/* SPDX-License-Identifier: MIT */
/* etcd_events.c - what the watch on n/ tells the engine.
 *
 * HOW   The watch begins behind the first answer. The text of a record has all
 *       that a waiter or an owner must know, also the lease of the mark, so a
 *       put of a record is told as the name itself. A deleted record, or a mark
 *       that ended alone, is told as an absent name: whoever is interested asks
 *       again. A mark that is deleted along with a put of the record is passed
 *       over: the record comes first.
 * THREADS  loop thread only; never inside a function of the service.
 */
#include "store/etcd/etcd_service.h"

static void tell_asking(struct vow__etcd_service *s, const vow_name *name)
{
    const struct cas_found unknown = {.name = *name};
    s->events.on_record(name, &unknown, s->events.user);
}

static void on_watch_put(const struct vow__kv *kv, void *user)
{
    struct vow__etcd_service *s = user;
    struct vow__etcd_record r;
    struct cas_found f;
    vow_name name;
    if (vow__etcd_name_key(kv->key, &name) != 'r')
        return;
    s->told = name;
    s->told_mod = kv->mod;
    if (vow__etcd_record_read(s->etcd, kv, &r) < 0 ||
        vow__etcd_found_make(s, &name, kv->mod, &r, &f) < 0) {
        tell_asking(s, &name);
        return;
    }
    s->events.on_record(&name, &f, s->events.user);
    vow__cas_found_fini(&f);
}

static void on_watch_delete(const struct vow__kv *kv, void *user)
{
    struct vow__etcd_service *s = user;
    vow_name name;
    char letter = vow__etcd_name_key(kv->key, &name);
    if (letter != 'r' && letter != 'a' && letter != 'b')
        return;
    if (s->told_mod == kv->mod && vow_name_equal(&s->told, &name))
        return;
    s->told = name;
    s->told_mod = kv->mod;
    tell_asking(s, &name);
}

void vow__etcd_on_doubt(void *user)
{
    struct vow__etcd_service *s = user;
    s->events.on_doubt(s->events.user);
}

/* ---- beginning and end --------------------------------------------------- */

void vow__etcd_service_listen(struct cas_service *service,
                              const struct cas_events *events)
{
    vow__etcd_service_of(service)->events = *events;
}

/* Without memory for a watch, the next answer tries. */
void vow__etcd_events_begin(struct vow__etcd_service *s, uint64_t revision)
{
    struct vow__key names = vow__key("n", NULL, "/");
    const struct vow__watch_events events = {.on_put = on_watch_put,
                                             .on_delete = on_watch_delete,
                                             .on_doubt = vow__etcd_on_doubt,
                                             .user = s};
    if (s->watch == NULL && s->events.on_record != NULL &&
        !vow__etcd_closing(s->etcd) &&
        vow__watch_open(s->etcd, &names, revision, &events, &s->watch) < 0)
        s->watch = NULL;
}

void vow__etcd_events_end(struct vow__etcd_service *s)
{
    (void)vow_call_stop(&s->doubt);
    if (s->watch != NULL)
        vow__watch_close(s->watch);
    s->watch = NULL;
    vow__etcd_turns_end(s);
}

void vow__etcd_events_doubt(struct vow__etcd_service *s)
{
    if (s->events.on_doubt != NULL && !vow_call_pending(&s->doubt))
        vow_call_soon(&s->doubt, vow__etcd_loop(s->etcd), vow__etcd_on_doubt,
                      s);
}
