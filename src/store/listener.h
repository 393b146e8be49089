/* SPDX-License-Identifier: MIT */
/* listener.h - events that can all be called, also before somebody listens. */
#ifndef VOW_STORE_LISTENER_H
#define VOW_STORE_LISTENER_H

#include "vow/store.h"

/* As given, and functions that do nothing for what was left out. */
vow_store_events vow__listener(const vow_store_events *given);

#endif
