/* SPDX-License-Identifier: MIT */
/* vow.h - everything libvow offers, in one include. */
#ifndef VOW_H
#define VOW_H

#include "vow/alloc.h"
#include "vow/batch.h"
#include "vow/breaker.h"
#include "vow/call.h"
#include "vow/combine.h"
#include "vow/common.h"
#include "vow/context.h"
#include "vow/error.h"
#include "vow/fiber.h"
#include "vow/gate.h"
#include "vow/gate_stats.h"
#include "vow/hedge.h"
#include "vow/loop.h"
#include "vow/map.h"
#include "vow/oracle.h"
#include "vow/parallel.h"
#include "vow/permit.h"
#include "vow/promise.h"
#include "vow/remote.h"
#include "vow/retry.h"
#include "vow/scope.h"
#include "vow/semaphore.h"
#include "vow/step.h"
#include "vow/value.h"
#include "vow/watch.h"
#include "vow/work.h"

#endif
