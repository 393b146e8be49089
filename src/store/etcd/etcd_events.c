/* SPDX-License-Identifier: MIT */
/* etcd_events.c - what the watches on n/ and s/ tell the engine.
 *
 * HOW   The watch begins behind the first answer. The text of a record has all
 *       that a waiter or an owner must know, also the lease of the mark, so a
 *       put of a record is told as the name itself. A deleted record, or a mark
 *       that ended alone, is told as an absent name: whoever is interested asks
 *       again. A mark that is deleted along with a put of the record is passed
 *       over: the record comes first.
 *       Pools are watched while requests wait. The engine follows sums, so each
 *       change is told with what the row was before.
 * THREADS  loop thread only; never inside a function of the service.
 */
#include "store/etcd/etcd_service.h"

static void tell_asking(struct vow__etcd_service *s, const vow_name *name)
{
    const struct cas_found unknown = {.name = *name};
    s->events.on_record(name, &unknown, s->events.user);
}

static void on_watch_put(const struct vow__kv *kv, const struct vow__kv *before,
                         void *user)
{
    struct vow__etcd_service *s = user;
    struct vow__etcd_record r;
    struct cas_found f;
    vow_name name;
    (void)before;
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

static void on_watch_delete(const struct vow__kv *kv,
                            const struct vow__kv *before, void *user)
{
    struct vow__etcd_service *s = user;
    vow_name name;
    char letter = vow__etcd_name_key(kv->key, &name);
    (void)before;
    if (letter != 'r' && letter != 'a' && letter != 'b')
        return;
    if (s->told_mod == kv->mod && vow_name_equal(&s->told, &name))
        return;
    s->told = name;
    s->told_mod = kv->mod;
    tell_asking(s, &name);
}

static void on_watch_doubt(void *user)
{
    struct vow__etcd_service *s = user;
    s->events.on_doubt(s->events.user);
}

/* ---- pools --------------------------------------------------------------- */

/* A row that was put: the engine knows of new rows by its own reads, and of a
 * row that moves to another lease needs to know nothing. */
static bool row_put(const struct vow__etcd_pool_key *key,
                    const struct vow__kv *kv, const struct vow__kv *before,
                    struct cas_pool_event *e)
{
    struct rules_row row, was;
    if (!vow__etcd_row_read(kv, &key->token, &row) || !row.marked ||
        !vow__etcd_row_read(before, &key->token, &was) || was.marked)
        return false;
    e->change = CAS_ROW_MARKED;
    e->token = key->token;
    e->order = row.order;
    e->weight = row.weight;
    return true;
}

static bool row_gone(const struct vow__etcd_pool_key *key,
                     const struct vow__kv *before, struct cas_pool_event *e)
{
    struct rules_row was;
    if (!vow__etcd_row_read(before, &key->token, &was))
        return false;
    e->change = CAS_ROW_GONE;
    e->token = key->token;
    e->order = was.order;
    e->weight = was.weight;
    e->marked = was.marked;
    return true;
}

/* `kv` NULL: the key was deleted. False: nothing to tell. */
static bool pool_event(const struct vow__etcd_service *s,
                       const struct vow__etcd_pool_key *key,
                       const struct vow__kv *kv, const struct vow__kv *before,
                       struct cas_pool_event *e)
{
    if (key->kind == VOW__ETCD_KEY_ROW)
        return kv != NULL ? row_put(key, kv, before, e)
                          : row_gone(key, before, e);
    if (key->kind == VOW__ETCD_KEY_ENTRY) {
        e->change = kv != NULL ? CAS_ENTRY_SET : CAS_ENTRY_GONE;
        e->entry.id = key->id;
        return kv == NULL || vow__etcd_entry_read(s, kv, key->id, &e->entry);
    }
    e->change = CAS_LIMITS_SET;
    e->there = kv != NULL && vow__etcd_limits_read(kv, &e->limits);
    e->limits_version = e->there ? kv->mod + s->shift : 0;
    return true;
}

/* A change of a row of which the former value was compacted away may be
 * anything. */
static void tell_pool(struct vow__etcd_service *s, const char *text,
                      uint64_t mod, const struct vow__kv *kv,
                      const struct vow__kv *before)
{
    struct vow__etcd_pool_key key;
    if (!vow__etcd_pool_key_read(text, &key))
        return;
    struct cas_pool_event e = {.pool = key.name, .revision = mod + s->shift};
    bool fresh = kv != NULL && kv->create == kv->mod;
    if (key.kind == VOW__ETCD_KEY_ROW && before == NULL && !fresh)
        vow__etcd_events_doubt(s);
    else if ((key.kind != VOW__ETCD_KEY_ROW || !fresh) &&
             pool_event(s, &key, kv, before, &e))
        s->events.on_pool(&e, s->events.user);
}

static void on_pool_put(const struct vow__kv *kv, const struct vow__kv *before,
                        void *user)
{
    tell_pool(user, kv->key, kv->mod, kv, before);
}

static void on_pool_delete(const struct vow__kv *kv,
                           const struct vow__kv *before, void *user)
{
    tell_pool(user, kv->key, kv->mod, NULL, before);
}

/* Without memory for a watch, the doubt makes the engine ask. */
void vow__etcd_service_follow(struct cas_service *service, uint64_t revision)
{
    struct vow__etcd_service *s = vow__etcd_service_of(service);
    const struct vow__key pools = vow__key("s", NULL, "/");
    const struct vow__watch_events events = {.on_put = on_pool_put,
                                             .on_delete = on_pool_delete,
                                             .on_doubt = on_watch_doubt,
                                             .recalled = true,
                                             .user = s};
    if (s->pools_watch != NULL)
        vow__watch_close(s->pools_watch);
    s->pools_watch = NULL;
    if (revision == 0 || vow__etcd_closing(s->etcd))
        return;
    uint64_t mod = revision > s->shift ? revision - s->shift : s->revision;
    if (vow__watch_open(s->etcd, &pools, mod, &events, &s->pools_watch) < 0)
        s->pools_watch = NULL;
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
                                             .on_doubt = on_watch_doubt,
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
    vow__etcd_service_follow(&s->service, 0);
}

void vow__etcd_events_doubt(struct vow__etcd_service *s)
{
    if (s->events.on_doubt != NULL && !vow_call_pending(&s->doubt))
        vow_call_soon(&s->doubt, vow__etcd_loop(s->etcd), on_watch_doubt, s);
}
