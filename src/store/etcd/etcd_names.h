/* SPDX-License-Identifier: MIT */
/* etcd_names.h - the store for named work, a part of the store on etcd. */
#ifndef VOW_STORE_ETCD_NAMES_H
#define VOW_STORE_ETCD_NAMES_H

#include "store/etcd/etcd_internal.h"

/* Opens the store for names, on the requests of `e`. ops->close() of the store
 * sends requests. */
int vow__etcd_names_open(struct vow__etcd *e, vow_store **ret_names);

#endif
