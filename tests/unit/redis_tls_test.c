/* SPDX-License-Identifier: MIT */
/* The store on a real server that speaks TLS, and wants to know who we are. */
#include "tls_rig.h"
/* Behind it, because both have a server. */
#include "redis_server_rig.h"

struct locked {
    struct redis_server redis;
    struct office office;
    char port[8];
    char url[512];
};

static void locked_start(struct locked *l, const char *clients)
{
    office_open(&l->office);
    office_write(l->office.other_file, &l->office.server, true, true);
    for (int i = 0; i < 5; i++) {
        snprintf(l->port, sizeof(l->port), "%u", redis_port());
        const char *const args[] = {"--tls-port",
                                    l->port,
                                    "--tls-cert-file",
                                    l->office.other_file,
                                    "--tls-key-file",
                                    l->office.other_file,
                                    "--tls-ca-cert-file",
                                    l->office.ca_file,
                                    "--tls-auth-clients",
                                    clients,
                                    NULL};
        redis_start(&l->redis, args);
        int fd = redis_connect((uint16_t)atoi(l->port));
        if (fd >= 0) {
            close(fd);
            return;
        }
        redis_stop(&l->redis); /* somebody else has got the port */
    }
    FAIL("no port for TLS");
}

static void locked_end(struct locked *l)
{
    redis_stop(&l->redis);
    office_close(&l->office);
}

/* What a claim says of an address with the port and these options. */
static void claim_at(struct locked *l, const char *options, int want,
                     const char *because)
{
    struct rig r = {.store = &rig_hurt};
    world_open_real(&r.world);
    snprintf(l->url, sizeof(l->url), "rediss://localhost:%s%s&timeout=30000",
             l->port, options);
    VOW_AUTO(vow_future)
    opened = vow_store_redis_open(r.world.loop, l->url, NULL);
    if (vow_state_of(opened) != VOW_FULFILLED)
        FAIL("%s", vow_error_message(vow_error_of(opened)));
    r.at[0] = vow_as_ptr(vow_get(opened));
    opened = vow_future_unref(opened);
    CHECK_INT_EQ(rig_claim(&r, 0, ASK("a", 1)).code, want);
    if (want != 0)
        CHECK_HAS(WHY(&r, 0), because);
    else
        CHECK_INT_EQ(rig_claim(&r, 0, ASK("a", 2)).status, VOW_STATUS_WAITING);
    rig_close(&r, 0);
    world_run(&r.world);
    world_close(&r.world);
}

TEST(redis_tls, a_server_that_is_trusted_is_used)
{
    static struct locked l;
    char options[256];
    locked_start(&l, "no");
    snprintf(options, sizeof(options), "?ca-file=%s&server-name=redis.test",
             l.office.ca_file);
    claim_at(&l, options, 0, "");
    snprintf(options, sizeof(options), "?ca-file=%s", l.office.ca_file);
    claim_at(&l, options, VOW_ESTORE, "localhost"); /* not its name */
    claim_at(&l, "?server-name=redis.test", VOW_ESTORE, "certificate");
    locked_end(&l);
}

TEST(redis_tls, a_server_that_wants_to_know_us_is_told)
{
    static struct locked l;
    char options[512];
    locked_start(&l, "yes");
    snprintf(options, sizeof(options),
             "?ca-file=%s&server-name=redis.test&cert-file=%s&key-file=%s",
             l.office.ca_file, l.office.cert_file, l.office.key_file);
    claim_at(&l, options, 0, "");
    snprintf(options, sizeof(options), "?ca-file=%s&server-name=redis.test",
             l.office.ca_file);
    claim_at(&l, options, VOW_ESTORE, "certificate");
    locked_end(&l);
}

TEST(redis_tls, a_file_that_is_none_is_told_when_it_is_opened)
{
    struct world w;
    world_open_real(&w);
    VOW_AUTO(vow_future)
    opened =
        vow_store_redis_open(w.loop, "rediss://h?ca-file=/no/such/file", NULL);
    CHECK_INT_EQ(vow_error_code(vow_error_of(opened)), VOW_EINVAL);
    CHECK_HAS(vow_error_message(vow_error_of(opened)), "/no/such/file");
    opened = vow_future_unref(opened);
    world_close(&w);
}
