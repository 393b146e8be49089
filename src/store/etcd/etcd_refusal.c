/* SPDX-License-Identifier: MIT */
/* etcd_refusal.c - what an error of etcd means: did it happen, and what now?
 *
 * WHY   A step that may have happened must never be called one that did not:
 *       work would be done twice. The other way round costs a round trip.
 * HOW   Errors come in two shapes, as a text and a number, and, from streams,
 *       as an object. The texts tell more than the numbers; those that are
 *       known to come before a request is proposed to the members are listed.
 *       Of the rest the number decides: what says that the request is wrong did
 *       not happen, all else is unsure.
 * LIMITS  Texts are those of etcd 3.4 to 3.6. An unknown one is never taken for
 *       more than its number says.
 * THREADS  any.
 */
#include "store/etcd/etcd_call.h"

#include <stdio.h>
#include <string.h>

/* Numbers of gRPC. */
enum {
    INVALID_ARGUMENT = 3,
    NOT_FOUND = 5,
    ALREADY_EXISTS = 6,
    PERMISSION_DENIED = 7,
    FAILED_PRECONDITION = 9,
    OUT_OF_RANGE = 11,
    UNIMPLEMENTED = 12,
    DATA_LOSS = 15,
    UNAUTHENTICATED = 16
};

static const struct known {
    const char *text; /* somewhere in what the server says */
    enum vow__refusal_kind kind;
    int code;
    const char *advice;
} known[] = {
    {"requested lease not found", VOW__REFUSAL_LAST, VOW_ENOENT, ""},
    {"request is too large", VOW__REFUSAL_LAST, VOW_E2BIG,
     "its members take no more than --max-request-bytes"},
    {"message larger than max", VOW__REFUSAL_LAST, VOW_E2BIG,
     "its members take no more than --max-request-bytes"},
    {"database space exceeded", VOW__REFUSAL_LAST, VOW_ESTORE,
     "compact and defragment it, then run \"etcdctl alarm disarm\""},
    {"corrupt cluster", VOW__REFUSAL_LAST, VOW_ESTORE,
     "its members do not have the same data"},
    /* Before it was proposed. */
    {"too many requests", VOW__REFUSAL_LAST, VOW_EAGAIN, ""},
    {"proposal dropped", VOW__REFUSAL_LAST, VOW_EAGAIN, ""},
    /* Before the request was looked at. */
    {"etcdserver: no leader", VOW__REFUSAL_HERE, VOW_ESTORE,
     "without a majority of its members etcd promises nothing"},
    {"not capable", VOW__REFUSAL_HERE, VOW_ESTORE, "it is only starting"},
    {"not supported for learner", VOW__REFUSAL_HERE, VOW_ESTORE,
     "name members that vote"},
    {"Error while dialing", VOW__REFUSAL_HERE, VOW_ESTORE, ""},
    {"invalid auth token", VOW__REFUSAL_TOKEN, VOW_ESTORE, ""},
    {"user name is empty", VOW__REFUSAL_TOKEN, VOW_ESTORE, ""},
    {"auth store is old", VOW__REFUSAL_TOKEN, VOW_ESTORE, ""},
    {"authentication is not enabled", VOW__REFUSAL_OPEN, VOW_ESTORE, ""},
    {"authentication failed", VOW__REFUSAL_WRONG, VOW_ESTORE, ""},
};

static struct known by_number(uint64_t number);
static void copy_words(const char *text, struct vow__refusal *r);

bool vow__refusal_read(unsigned status, const json_t *root,
                       struct vow__refusal *ret_refusal)
{
    const json_t *error = json_object_get(root, "error");
    const json_t *number = json_is_object(error) ? error : root;
    const char *text = json_string_value(error);
    if (error == NULL && status == 200)
        return false;
    if (text == NULL)
        text = json_string_value(json_object_get(number, "message"));
    uint64_t code = vow__json_uint(number, "grpc_code");
    struct known k =
        by_number(code != 0 ? code : vow__json_uint(number, "code"));
    for (size_t i = 0; text != NULL && i < sizeof(known) / sizeof(*known); i++)
        if (strstr(text, known[i].text) != NULL) {
            k = known[i];
            break;
        }
    *ret_refusal = (struct vow__refusal){
        .kind = k.kind, .code = k.code, .advice = k.advice};
    copy_words(text != NULL ? text : "an error without a text", ret_refusal);
    return true;
}

static struct known by_number(uint64_t number)
{
    switch (number) {
    case UNAUTHENTICATED:
        return (struct known){NULL, VOW__REFUSAL_TOKEN, VOW_ESTORE, ""};
    case PERMISSION_DENIED:
        return (struct known){NULL, VOW__REFUSAL_RIGHT, VOW_ESTORE, ""};
    case INVALID_ARGUMENT:
    case NOT_FOUND:
    case ALREADY_EXISTS:
    case FAILED_PRECONDITION:
    case OUT_OF_RANGE:
    case UNIMPLEMENTED:
    case DATA_LOSS:
        return (struct known){NULL, VOW__REFUSAL_LAST, VOW_ESTORE, ""};
    default:
        return (struct known){NULL, VOW__REFUSAL_LAST, VOW_EUNSURE, ""};
    }
}

static void copy_words(const char *text, struct vow__refusal *r)
{
    (void)snprintf(r->words, sizeof(r->words), "%s", text);
    for (char *c = r->words; *c != 0; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}
