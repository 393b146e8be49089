/* SPDX-License-Identifier: MIT */
/* vow.h - everything libvow offers, in one include. */
#ifndef VOW_H
#define VOW_H

#include "vow/alloc.h"
#include "vow/combine.h"
#include "vow/common.h"
#include "vow/error.h"
#include "vow/fiber.h"
#include "vow/loop.h"
#include "vow/promise.h"
#include "vow/remote.h"
#include "vow/retry.h"
#include "vow/scope.h"
#include "vow/step.h"
#include "vow/value.h"
#include "vow/work.h"

#endif
