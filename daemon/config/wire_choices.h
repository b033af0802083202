// SPDX-License-Identifier: Apache-2.0
#pragma once

// Choices as they travel in control.proto and as the program has them. A wire value is the
// program's plus one, because 0 is what a field has that nobody set.

#include "daemon/config/choices.h"
#include "ops/format/int4_rows.h"
#include "ops/format/kv_dtype.h"
#include "proto/control.pb.h"
#include "proto/status.h"
#include "schedule/dispatch/ffn_scheduler.h"
#include "schedule/layout/router_placement.h"
#include "schedule/layout/row_dtype.h"
#include "schedule/layout/segment_header.h"

namespace afd::daemon {

// A role as messages have it, one of the two.
inline schedule::Role role_of(control::Role role) {
    return role == control::FFN ? schedule::Role::kFfn : schedule::Role::kAttention;
}

control::Router to_wire(schedule::RouterPlacement router);
control::SharedExperts to_wire(SharedExperts side);
control::RowDtype to_wire(schedule::RowDtype dtype);
control::FfnPolicy to_wire(schedule::FfnPolicy policy);
control::KvDtype to_wire(ops::KvDtype dtype);

// What int4 experts multiply.
inline ops::Int4Rows int4_rows_of(const control::Welcome& welcome) {
    return welcome.int4_with_int8_rows() ? ops::Int4Rows::kInt8 : ops::Int4Rows::kBf16;
}

// Errors: kDataLoss, a value that is not known here.
Result<schedule::RouterPlacement> from_wire(control::Router router);
Result<SharedExperts> from_wire(control::SharedExperts side);
Result<schedule::RowDtype> from_wire(control::RowDtype dtype);
Result<schedule::FfnPolicy> from_wire(control::FfnPolicy policy);
Result<ops::KvDtype> from_wire(control::KvDtype dtype);

}  // namespace afd::daemon
