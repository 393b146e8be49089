/* SPDX-License-Identifier: MIT */
/* listener.c - see listener.h. */
#include "store/listener.h"

static void no_record(const vow_record *record, void *user)
{
    (void)record;
    (void)user;
}

static void no_name(const vow_name *name, void *user)
{
    (void)name;
    (void)user;
}

static void no_place(const vow_token *token, void *user)
{
    (void)token;
    (void)user;
}

static void no_doubt(void *user)
{
    (void)user;
}

vow_store_events vow__listener(const vow_store_events *given)
{
    vow_store_events events = *given;
    if (events.on_record == NULL)
        events.on_record = no_record;
    if (events.on_cancel == NULL)
        events.on_cancel = no_name;
    if (events.on_chunks == NULL)
        events.on_chunks = no_name;
    if (events.on_permit == NULL)
        events.on_permit = no_place;
    if (events.on_doubt == NULL)
        events.on_doubt = no_doubt;
    return events;
}
