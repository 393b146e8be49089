/* SPDX-License-Identifier: MIT */
/* http_parse.h - the response of a server by HTTP/1.1, as the bytes arrive. See
 * http_parse.c.
 */
#ifndef VOW_STORE_NET_HTTP_PARSE_H
#define VOW_STORE_NET_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VOW__HTTP_LINE = 8 * 1024, /* bytes of a line at most */
    VOW__HTTP_HEAD = 64 * 1024 /* and of all lines before a body or chunk */
};

enum vow__http_event {
    VOW__HTTP_BAD,  /* not HTTP, or more than the limits */
    VOW__HTTP_MORE, /* all bytes were taken, and more must arrive */
    VOW__HTTP_BODY, /* some bytes of the body */
    VOW__HTTP_END   /* the response is whole */
};

/* Zeroed at first. The fields are for reading, behind the head. */
struct vow__http_parser {
    uint8_t state;
    unsigned status;
    bool closes; /* the server closes the connection behind the response */
    bool chunked;
    bool sized;    /* Content-Length */
    bool old;      /* HTTP/1.0 */
    uint64_t left; /* bytes of the body, or of a chunk */
    size_t head;   /* bytes of lines so far */
    size_t line_n;
    char line[VOW__HTTP_LINE];
};

/* Takes bytes until there is an event. */
enum vow__http_event vow__http_parse(struct vow__http_parser *p,
                                     const char **bytes, size_t *n,
                                     const char **ret_body, size_t *ret_n);
/* The server has closed the connection. Returns whether the response is whole
 * by that. */
bool vow__http_parse_close(const struct vow__http_parser *p);

#endif
