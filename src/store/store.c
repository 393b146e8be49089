/* SPDX-License-Identifier: MIT */
/* store.c - opening a store by its address.
 *
 * HOW   The word before the colon says which; the rest is that store's own. A
 *       store that was left out of this build is told apart from an address
 *       that is none.
 */
#include "vow/store.h"
#include "base/assert.h"
#include "vow/store_etcd.h"
#include "vow/store_memory.h"
#include "vow/store_redis.h"
#include "vow/store_sqlite.h"

#include <string.h>

static const char *behind(const char *url, const char *prefix);
static vow_future *open_memory(const char *site, vow_loop *loop,
                               const char *rest);
static vow_future *open_folder(const char *site, vow_loop *loop,
                               const char *folder);
static vow_future *open_redis(const char *site, vow_loop *loop,
                              const char *url);
static vow_future *open_etcd(const char *site, vow_loop *loop, const char *url);

vow_future *vow_store_open_at(const char *site, vow_loop *loop, const char *url)
{
    VOW__ASSERT_THREAD(loop);
    static const char *const on_redis[] = {"redis://", "rediss://",
                                           "unix:", "redis-sentinel://",
                                           "rediss-sentinel://"};
    const char *rest;
    if ((rest = behind(url, "memory:")) != NULL)
        return open_memory(site, loop, rest);
    if ((rest = behind(url, "file:")) != NULL)
        return open_folder(site, loop, rest);
    for (size_t i = 0; i < sizeof(on_redis) / sizeof(on_redis[0]); i++)
        if (behind(url, on_redis[i]) != NULL)
            return open_redis(site, loop, url);
    if (behind(url, "etcd://") != NULL || behind(url, "etcds://") != NULL)
        return open_etcd(site, loop, url);
    return vow_refused_at(site, loop, VOW_EINVAL,
                          "the address of a store is \"memory:\", "
                          "\"file:DIR\", \"redis://HOST\", \"unix:PATH\" or "
                          "\"etcd://HOST\"");
}

/* NULL: it does not begin so. */
static const char *behind(const char *url, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(url, prefix, n) == 0 ? url + n : NULL;
}

static vow_future *open_memory(const char *site, vow_loop *loop,
                               const char *rest)
{
    vow_store *s;
    if (*rest != 0)
        return vow_refused_at(site, loop, VOW_EINVAL,
                              "nothing comes behind \"memory:\"");
    int rc = vow_store_memory_new(loop, NULL, &s);
    if (rc < 0)
        return vow_refused_at(site, loop, rc, NULL);
    vow_future *f = vow_resolved_at(site, loop, vow_ptr(s));
    if (vow_state_of(f) == VOW_REJECTED) /* nobody will ever get it */
        vow_future_unref(s->ops->close(s));
    return f;
}

static vow_future *open_folder(const char *site, vow_loop *loop,
                               const char *folder)
{
    if (*folder == 0)
        return vow_refused_at(site, loop, VOW_EINVAL,
                              "a folder comes behind \"file:\"");
#ifdef VOW_HAVE_SQLITE
    return vow_store_sqlite_open_at(site, loop, folder, NULL);
#else
    return vow_refused_at(site, loop, VOW_ENOTSUP,
                          "this build has no store in a folder: it was made "
                          "without SQLite");
#endif
}

static vow_future *open_redis(const char *site, vow_loop *loop, const char *url)
{
#ifdef VOW_HAVE_REDIS
    return vow_store_redis_open_at(site, loop, url, NULL);
#else
    (void)url;
    return vow_refused_at(site, loop, VOW_ENOTSUP,
                          "this build has no store on Redis");
#endif
}

static vow_future *open_etcd(const char *site, vow_loop *loop, const char *url)
{
#ifdef VOW_HAVE_ETCD
    return vow_store_etcd_open_at(site, loop, url, NULL);
#else
    (void)url;
    return vow_refused_at(site, loop, VOW_ENOTSUP,
                          "this build has no store on etcd");
#endif
}
