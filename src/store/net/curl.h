/* SPDX-License-Identifier: MIT */
/* curl.h - libcurl's functions, loaded when the first one is needed.
 *
 * WHY   As OpenSSL: see library.c.
 * HOW   A table that is filled by dlsym(), and macros that send calls there.
 *       Those of libcurl itself that check types stand in the way. Whoever
 *       includes this calls vow__curl_load() first.
 * LIMITS  what it allocates does not come through our allocator: to change that
 *       would change it for the whole program.
 */
#ifndef VOW_STORE_NET_CURL_H
#define VOW_STORE_NET_CURL_H

#define CURL_DISABLE_TYPECHECK
#define CURL_DISABLE_DEPRECATION /* curl_multi_socket_all(): http_socket.c */
#include <curl/curl.h>
#include <stddef.h>

#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_share_setopt
#undef curl_multi_setopt

#define VOW__CURL(X)                                                           \
    X(curl_easy_cleanup)                                                       \
    X(curl_easy_getinfo)                                                       \
    X(curl_easy_init)                                                          \
    X(curl_easy_setopt)                                                        \
    X(curl_easy_strerror)                                                      \
    X(curl_global_init)                                                        \
    X(curl_multi_add_handle)                                                   \
    X(curl_multi_cleanup)                                                      \
    X(curl_multi_info_read)                                                    \
    X(curl_multi_init)                                                         \
    X(curl_multi_remove_handle)                                                \
    X(curl_multi_setopt)                                                       \
    X(curl_multi_socket_action)                                                \
    X(curl_multi_socket_all)                                                   \
    X(curl_slist_append)                                                       \
    X(curl_slist_free_all)                                                     \
    X(curl_version_info)

struct vow__curl {
#define VOW__POINTER(name) __typeof__(name) *name;
    VOW__CURL(VOW__POINTER)
#undef VOW__POINTER
};
extern struct vow__curl vow__curl;

/* From any thread, any number of times. VOW_ENOTSUP with a sentence in `why`:
 * it is not installed, too old, or cannot look names up without waiting. */
int vow__curl_load(char *why, size_t why_size);

#ifndef VOW__CURL_TABLE
#define curl_easy_cleanup vow__curl.curl_easy_cleanup
#define curl_easy_getinfo vow__curl.curl_easy_getinfo
#define curl_easy_init vow__curl.curl_easy_init
#define curl_easy_setopt vow__curl.curl_easy_setopt
#define curl_easy_strerror vow__curl.curl_easy_strerror
#define curl_global_init vow__curl.curl_global_init
#define curl_multi_add_handle vow__curl.curl_multi_add_handle
#define curl_multi_cleanup vow__curl.curl_multi_cleanup
#define curl_multi_info_read vow__curl.curl_multi_info_read
#define curl_multi_init vow__curl.curl_multi_init
#define curl_multi_remove_handle vow__curl.curl_multi_remove_handle
#define curl_multi_setopt vow__curl.curl_multi_setopt
#define curl_multi_socket_action vow__curl.curl_multi_socket_action
#define curl_multi_socket_all vow__curl.curl_multi_socket_all
#define curl_slist_append vow__curl.curl_slist_append
#define curl_slist_free_all vow__curl.curl_slist_free_all
#define curl_version_info vow__curl.curl_version_info
#endif

#endif
