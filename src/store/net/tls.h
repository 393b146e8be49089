/* SPDX-License-Identifier: MIT */
/* tls.h - TLS without a socket: bytes in, bytes out. Between stream.c, which
 * has the socket, and tls.c. What is given by vow__session_give() belongs on
 * the wire, after every call.
 */
#ifndef VOW_STORE_NET_TLS_H
#define VOW_STORE_NET_TLS_H

#include "store/net/stream.h"

struct vow__session;

/* With a server whose certificate must be for `name`, a host name or an
 * address. Sentences call it `shown`, which stays. VOW_EINVAL: the name is
 * none. VOW_ENOMEM. */
int vow__session_new(struct vow__tls *t, const char *name, const char *shown,
                     struct vow__session **ret_session);
void vow__session_free(struct vow__session *s);

/* Bytes from the wire (copied). VOW_ENOMEM. */
int vow__session_take(struct vow__session *s, const char *bytes, size_t n);
/* Bytes for the wire: how many, at most `size`; 0: none. */
size_t vow__session_give(struct vow__session *s, char *bytes, size_t size);

/* Agree with the server: 1. 0: it needs more bytes. A negative code:
 * vow__session_why() tells. */
int vow__session_greet(struct vow__session *s);
/* Then: clear bytes, how many; 0: it needs more bytes. A negative code as
 * above, VOW_ECLOSED when the server has said that it sends no more. */
int vow__session_read(struct vow__session *s, char *bytes, size_t size);
/* How many of these clear bytes were taken, perhaps 0: again after the next
 * read. */
int vow__session_write(struct vow__session *s, const char *bytes, size_t n);
/* We send no more. */
void vow__session_bye(struct vow__session *s);
const char *vow__session_why(const struct vow__session *s);
/* The server did not take our certificate, or wants one. */
bool vow__session_refused(const struct vow__session *s);

#endif
