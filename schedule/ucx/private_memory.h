// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a worker that talks over UCX takes of memory that nobody else maps: its window, what it
// keeps for its peers (UcxOutbox), and the words of two-phase rounds. For whoever has to know
// before the worker takes it; nothing here needs UCX.
//
// Left out: rings of neighbours (schedule/near), which two workers share, rounds in two phases,
// further places of messages that UCX lets go of late (ucx_outbox.h), and what UCX takes for
// itself.

#include <cstdint>
#include <string>

#include "proto/status.h"
#include "schedule/layout/segment_header.h"
#include "schedule/layout/window_layout.h"

namespace afd::schedule {

uint64_t private_bytes(const WindowLayout& layout, Role role);

// Whether every publication fits into one message, also between neighbours.
// Errors: kInvalidArgument: the largest is longer; says what to change.
Result<> check_publication_bytes(const WindowLayout& layout);

// Of `what` that takes so many bytes for windows. Errors: kResourceExhausted: there is no room.
Result<> check_private_room(const std::string& what, uint64_t size_bytes);

}  // namespace afd::schedule
