/* SPDX-License-Identifier: MIT */
/* http_why.c - why a request has no answer, as a code and a sentence.
 *
 * HOW   What counts is whether anything was sent. Sentences name the server;
 *       headers and bodies are not in them. Of libcurl's own words only those
 *       on TLS are used, which say what is wrong with a certificate.
 * THREADS  loop thread only.
 */
#include "store/net/http_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool certificate_refused(const struct vow__http_request *r);
static void say(const struct vow__http_request *r, CURLcode result, char *why,
                size_t why_size);
static void say_connect(const struct vow__http_request *r, char *why,
                        size_t why_size);
static void say_tls(const struct vow__http_request *r, const char *is,
                    char *why, size_t why_size);
static const char *words(CURLcode result);

int vow__http_explain(const struct vow__http_request *r, CURLcode result,
                      char *why, size_t why_size)
{
    bool sent = vow__http_request_sent(r);
    if (r->code == VOW_E2BIG) {
        (void)snprintf(why, why_size,
                       "the answer of %s is longer than %zu bytes", r->shown,
                       r->answer_max);
        return VOW_E2BIG;
    }
    if (r->code == VOW_ENOMEM || result == CURLE_OUT_OF_MEMORY) {
        (void)snprintf(why, why_size, "%s", vow_error_text(VOW_ENOMEM));
        return sent ? VOW_EUNSURE : VOW_ENOMEM;
    }
    if (sent && result == CURLE_RECV_ERROR && certificate_refused(r)) {
        say_tls(r, "does not agree on TLS", why, why_size);
        return VOW_ESTORE;
    }
    say(r, result, why, why_size);
    return sent ? VOW_EUNSURE : VOW_ESTORE;
}

/* By TLS 1.3 a server looks at our certificate when we think that all is well.
 * Of what was sent behind it nothing was read. */
static bool certificate_refused(const struct vow__http_request *r)
{
    return strstr(r->error, " alert ") != NULL &&
           (strstr(r->error, "certificate") != NULL ||
            strstr(r->error, "unknown ca") != NULL);
}

static void say(const struct vow__http_request *r, CURLcode result, char *why,
                size_t why_size)
{
    switch (result) {
    case CURLE_COULDNT_RESOLVE_HOST:
        (void)snprintf(why, why_size, "the name of %s was not found", r->shown);
        return;
    case CURLE_COULDNT_CONNECT:
        say_connect(r, why, why_size);
        return;
    case CURLE_OPERATION_TIMEDOUT: /* we set no other limit */
        (void)snprintf(why, why_size, "%s did not answer within %llu ms",
                       r->shown, (unsigned long long)r->http->connect_ms);
        return;
    case CURLE_PEER_FAILED_VERIFICATION:
        say_tls(r, "has a certificate that cannot be trusted", why, why_size);
        return;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
        say_tls(r, "does not agree on TLS", why, why_size);
        return;
    default:
        break;
    }
    const char *is = r->repeated ? words(CURLE_GOT_NOTHING) : words(result);
    if (is != NULL)
        (void)snprintf(why, why_size, "%s %s", r->shown, is);
    else
        (void)snprintf(why, why_size, "%s: %s", r->shown,
                       curl_easy_strerror(result));
}

static void say_connect(const struct vow__http_request *r, char *why,
                        size_t why_size)
{
    char text[128];
    long error = 0;
    (void)curl_easy_getinfo(r->easy, CURLINFO_OS_ERRNO, &error);
    if (error == ECONNREFUSED)
        (void)snprintf(why, why_size, "%s refused the connection", r->shown);
    else if (error == EHOSTUNREACH || error == ENETUNREACH)
        (void)snprintf(why, why_size,
                       "%s cannot be reached: there is no way to it", r->shown);
    else if (error == 0)
        (void)snprintf(why, why_size, "%s cannot be connected to", r->shown);
    else
        (void)snprintf(why, why_size, "%s cannot be connected to: %s", r->shown,
                       uv_strerror_r(-(int)error, text, sizeof(text)));
}

/* "error:0A000086:SSL routines::certificate verify failed": the last part is
 * for people. */
static void say_tls(const struct vow__http_request *r, const char *is,
                    char *why, size_t why_size)
{
    static const char *const before[] = {"SSL certificate problem: ", "SSL: "};
    const char *text = r->error;
    for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++)
        if (strncmp(text, before[i], strlen(before[i])) == 0)
            text += strlen(before[i]);
    const char *last = strstr(text, "::");
    if (last != NULL)
        text = last + 2;
    const char *end = strstr(text, ", errno ");
    int n = end == NULL ? (int)strlen(text) : (int)(end - text);
    (void)snprintf(why, why_size, "%s %s: %.*s", r->shown, is, n, text);
}

static const char *words(CURLcode result)
{
    switch (result) {
    case CURLE_GOT_NOTHING:
        return "closed the connection without an answer";
    case CURLE_PARTIAL_FILE:
        return "closed the connection before its answer was whole";
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
        return "broke the connection off";
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
        return "does not answer by HTTP";
    default:
        return NULL;
    }
}

void vow__http_show(const char *url, char *shown, size_t size)
{
    const char *behind = strstr(url, "://");
    const char *host = behind == NULL ? url : behind + 3;
    size_t n = strcspn(host, "/?#");
    const char *at = memchr(host, '@', n);
    if (at != NULL) { /* who asks is nobody's business */
        n -= (size_t)(at + 1 - host);
        host = at + 1;
    }
    (void)snprintf(shown, size, "%.*s", (int)n, host);
}
