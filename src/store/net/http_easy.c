/* SPDX-License-Identifier: MIT */
/* http_easy.c - what libcurl is told of a request, and what it hands over.
 *
 * WHY   libcurl sends a request again by itself when a connection that was used
 *       before ends without an answer. The server may have done what it says
 *       and died then: to send it twice is to do it twice.
 * HOW   It asks before each sending; the second is refused if anything of the
 *       first has left. Proxies, redirects and whatever else comes from the
 *       environment or the server are off: a request goes to whom it is for.
 *       The answer is gathered here, or handed on as it comes.
 * LIMITS  what was taken by the system counts as sent.
 * THREADS  loop thread only.
 */
#include "store/net/http_internal.h"

#include <string.h>

enum {
    KEEP = 64 * 1024,   /* bytes of a buffer that is kept */
    ROOM_MIN = 2 * 1024 /* bytes of a buffer */
};

static int set_up(struct vow__http_request *r);
static CURLcode set_texts(struct vow__http_request *r);
static CURLcode set_calls(struct vow__http_request *r);
static int set_header(struct vow__http_request *r, const char *const *header);
static bool same_header(const struct curl_slist *have,
                        const char *const *header);
static bool add(struct curl_slist **list, const char *line);
static int before_sending(void *user, char *to_ip, char *from_ip, int to_port,
                          int from_port);
static size_t on_write(char *bytes, size_t one, size_t n, void *user);
static size_t hand_on(struct vow__http_request *r, const char *bytes, size_t n);
static size_t gather(struct vow__http_request *r, const char *bytes, size_t n);
static bool reserve(struct vow__http_request *r, struct vow__http_bytes *b,
                    size_t room);
static void bytes_free(struct vow__http_request *r, struct vow__http_bytes *b);

/* No "100 Continue" is asked for: it would cost a round trip. */
static const char always[] = "Expect:";

/* ---- making and freeing ------------------------------------------------- */

struct vow__http_request *vow__http_request_new(struct vow__http *h)
{
    struct vow__http_request *r = vow__mem_zero(&h->alloc, sizeof(*r));
    if (r == NULL)
        return NULL;
    r->http = h;
    r->easy = curl_easy_init();
    if (r->easy == NULL || set_up(r) < 0) {
        vow__http_request_free(r);
        return NULL;
    }
    return r;
}

static int set_up(struct vow__http_request *r)
{
    static const struct {
        CURLoption option;
        long value;
    } numbers[] = {
        {CURLOPT_NOSIGNAL, 1},
        {CURLOPT_POST, 1},
        {CURLOPT_FOLLOWLOCATION, 0},
        {CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1},
        {CURLOPT_SSL_VERIFYPEER, 1},
        {CURLOPT_SSL_VERIFYHOST, 2},
        {CURLOPT_SSLVERSION, CURL_SSLVERSION_TLSv1_2}, /* or newer */
        {CURLOPT_TCP_NODELAY, 1},
        {CURLOPT_TCP_KEEPALIVE, 1}, /* a server that is gone is noticed */
        {CURLOPT_TCP_KEEPIDLE, 15},
        {CURLOPT_TCP_KEEPINTVL, 5},
        {CURLOPT_QUICK_EXIT, 1}, /* do not wait for a name */
    };
    CURLcode rc = CURLE_OK;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (rc == CURLE_OK)
            rc = curl_easy_setopt(r->easy, numbers[i].option, numbers[i].value);
    /* Addresses of a name share this time. We look at the clock ourselves. */
    uint64_t ms = r->http->connect_ms;
    if (rc == CURLE_OK && ms > 0)
        rc = curl_easy_setopt(r->easy, CURLOPT_CONNECTTIMEOUT_MS,
                              ms < INT32_MAX ? (long)ms : (long)INT32_MAX);
    if (rc == CURLE_OK)
        rc = set_texts(r);
    if (rc == CURLE_OK)
        rc = set_calls(r);
    return rc == CURLE_OK ? 0 : VOW_ENOMEM;
}

static CURLcode set_texts(struct vow__http_request *r)
{
    const struct {
        CURLoption option;
        const char *text;
    } texts[] = {
        {CURLOPT_PROXY, ""},
        {CURLOPT_PROTOCOLS_STR, "http,https"},
        {CURLOPT_CAINFO, r->http->ca_file},
        {CURLOPT_SSLCERT, r->http->cert_file},
        {CURLOPT_SSLKEY, r->http->key_file},
        {CURLOPT_KEYPASSWD, ""}, /* nobody is asked on the terminal */
    };
    CURLcode rc = CURLE_OK;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (rc == CURLE_OK && texts[i].text != NULL)
            rc = curl_easy_setopt(r->easy, texts[i].option, texts[i].text);
    if (rc == CURLE_OK && r->http->ca_file != NULL) /* that file alone */
        rc = curl_easy_setopt(r->easy, CURLOPT_CAPATH, NULL);
    return rc;
}

static CURLcode set_calls(struct vow__http_request *r)
{
    CURL *e = r->easy;
    (void)curl_easy_setopt(e, CURLOPT_PRIVATE, r);
    (void)curl_easy_setopt(e, CURLOPT_ERRORBUFFER, r->error);
    (void)curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_write);
    (void)curl_easy_setopt(e, CURLOPT_WRITEDATA, r);
    (void)curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION,
                           vow__http_socket_open);
    (void)curl_easy_setopt(e, CURLOPT_OPENSOCKETDATA, r);
    (void)curl_easy_setopt(e, CURLOPT_CLOSESOCKETFUNCTION,
                           vow__http_socket_close);
    (void)curl_easy_setopt(e, CURLOPT_CLOSESOCKETDATA, r->http);
    (void)curl_easy_setopt(e, CURLOPT_PREREQDATA, r);
    return curl_easy_setopt(e, CURLOPT_PREREQFUNCTION, before_sending);
}

void vow__http_request_free(struct vow__http_request *r)
{
    struct vow_alloc alloc = r->http->alloc;
    if (r->easy != NULL)
        curl_easy_cleanup(r->easy);
    curl_slist_free_all(r->header);
    bytes_free(r, &r->body);
    bytes_free(r, &r->answer);
    vow__mem_free(&alloc, r, sizeof(*r));
}

/* ---- filling ------------------------------------------------------------ */

int vow__http_request_fill(struct vow__http_request *r,
                           const struct vow__http_ask *ask)
{
    r->stream = ask->on_bytes != NULL;
    r->on_bytes = ask->on_bytes;
    r->begun = false;
    r->repeated = false;
    r->forgiven = false;
    r->code = 0;
    r->settled = false;
    r->timeout_ms = ask->timeout_ms;
    r->part_ms = ask->part_ms;
    r->answer_max = ask->answer_max;
    r->error[0] = '\0';
    vow__http_show(ask->url, r->shown, sizeof(r->shown));
    if (set_header(r, ask->header) < 0 ||
        !reserve(r, &r->body, ask->body_size) ||
        curl_easy_setopt(r->easy, CURLOPT_URL, ask->url) != CURLE_OK)
        return VOW_ENOMEM;
    if (ask->body_size > 0)
        memcpy(r->body.bytes, ask->body, ask->body_size);
    r->body.n = ask->body_size;
    (void)curl_easy_setopt(r->easy, CURLOPT_POSTFIELDS,
                           r->body.n == 0 ? "" : r->body.bytes);
    (void)curl_easy_setopt(r->easy, CURLOPT_POSTFIELDSIZE_LARGE,
                           (curl_off_t)r->body.n);
    return 0;
}

/* They are mostly those of the last one. */
static int set_header(struct vow__http_request *r, const char *const *header)
{
    static const char *const none[] = {NULL};
    struct curl_slist *list = NULL;
    if (header == NULL)
        header = none;
    if (r->header != NULL && same_header(r->header, header))
        return 0;
    bool ok = add(&list, always);
    for (size_t i = 0; ok && header[i] != NULL; i++)
        ok = add(&list, header[i]);
    if (!ok) {
        curl_slist_free_all(list);
        return VOW_ENOMEM;
    }
    curl_slist_free_all(r->header);
    r->header = list;
    (void)curl_easy_setopt(r->easy, CURLOPT_HTTPHEADER, list);
    return 0;
}

static bool same_header(const struct curl_slist *have,
                        const char *const *header)
{
    have = have->next; /* behind what is always there */
    for (; *header != NULL; header++, have = have->next)
        if (have == NULL || strcmp(have->data, *header) != 0)
            return false;
    return have == NULL;
}

static bool add(struct curl_slist **list, const char *line)
{
    struct curl_slist *longer = curl_slist_append(*list, line);
    if (longer != NULL)
        *list = longer;
    return longer != NULL;
}

void vow__http_request_empty(struct vow__http_request *r)
{
    struct vow__http_bytes *all[] = {&r->body, &r->answer};
    for (size_t i = 0; i < 2; i++) {
        all[i]->n = 0;
        if (all[i]->room > KEEP)
            bytes_free(r, all[i]);
    }
}

/* ---- what libcurl asks and says ----------------------------------------- */

bool vow__http_request_sent(const struct vow__http_request *r)
{
    long size = 0;
    if (!r->begun)
        return false;
    (void)curl_easy_getinfo(r->easy, CURLINFO_REQUEST_SIZE, &size);
    return size > 0;
}

/* The time to connect is over; what is left is the time for all. */
/* NOLINTNEXTLINE(readability-non-const-parameter): the type is libcurl's */
static int before_sending(void *user, char *to_ip, char *from_ip, int to_port,
                          int from_port)
{
    struct vow__http_request *r = user;
    (void)to_ip;
    (void)from_ip;
    (void)to_port;
    (void)from_port;
    r->repeated = vow__http_request_sent(r);
    r->begun = true;
    r->settled = true;
    if (r->deadline_ns == UINT64_MAX && r->code == 0)
        (void)vow_call_stop(&r->late);
    return r->repeated ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
}

static size_t on_write(char *bytes, size_t one, size_t n, void *user)
{
    struct vow__http_request *r = user;
    long status = 0;
    (void)one; /* it is 1 */
    if (r->state != VOW__HTTP_RUNS || r->code != 0)
        return 0;
    if (r->on_bytes == NULL)
        return gather(r, bytes, n);
    vow__http_heard(r);
    (void)curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &status);
    return status == 200 ? hand_on(r, bytes, n) : gather(r, bytes, n);
}

/* Whoever is called may start programs: they have the signals we had. */
static size_t hand_on(struct vow__http_request *r, const char *bytes, size_t n)
{
    sigset_t blocked;
    if (n == 0)
        return 0;
    (void)pthread_sigmask(SIG_SETMASK, &r->http->signals, &blocked);
    r->on_bytes(bytes, n, r->user);
    (void)pthread_sigmask(SIG_SETMASK, &blocked, NULL);
    return r->state == VOW__HTTP_RUNS ? n : 0;
}

static size_t gather(struct vow__http_request *r, const char *bytes, size_t n)
{
    struct vow__http_bytes *a = &r->answer;
    curl_off_t whole = -1;
    if (n > r->answer_max - a->n) {
        r->code = VOW_E2BIG;
        return 0;
    }
    if (a->n == 0)
        (void)curl_easy_getinfo(r->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T,
                                &whole);
    size_t room = a->n + n;
    if (whole > (curl_off_t)room && (size_t)whole <= r->answer_max)
        room = (size_t)whole;
    if (!reserve(r, a, room)) {
        r->code = VOW_ENOMEM;
        return 0;
    }
    if (n > 0)
        memcpy(a->bytes + a->n, bytes, n);
    a->n += n;
    return n;
}

static bool reserve(struct vow__http_request *r, struct vow__http_bytes *b,
                    size_t room)
{
    if (room <= b->room)
        return true;
    if (room < 2 * b->room)
        room = 2 * b->room;
    if (room < ROOM_MIN)
        room = ROOM_MIN;
    char *bytes = vow__mem_new(&r->http->alloc, room);
    if (bytes == NULL)
        return false;
    if (b->n > 0)
        memcpy(bytes, b->bytes, b->n);
    vow__mem_free(&r->http->alloc, b->bytes, b->room);
    b->bytes = bytes;
    b->room = room;
    return true;
}

static void bytes_free(struct vow__http_request *r, struct vow__http_bytes *b)
{
    vow__mem_free(&r->http->alloc, b->bytes, b->room);
    *b = (struct vow__http_bytes){.n = 0};
}
