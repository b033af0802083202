// SPDX-License-Identifier: Apache-2.0
#pragma once

// SegmentHeader: who made a segment, and for what. At byte 1024 of every control segment.
//
// Written once by the creator (afdd) before any worker starts, never changed. A worker copies it
// once at attach and compares it with what afdd told it; the windows of the same prefix and index
// follow the control segment's geometry.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "proto/status.h"
#include "schedule/layout/geometry.h"
#include "schedule/layout/router_placement.h"
#include "schedule/layout/row_dtype.h"
#include "schedule/layout/window_layout.h"

namespace afd::schedule {

// "AFDSEGM1" read as a little-endian number.
inline constexpr uint64_t kSegmentMagic = 0x314d474553444641;
// Raised with every change of docs/wire.md.
inline constexpr uint32_t kLayoutVersion = 5;

enum class Role : uint32_t { kFfn = 1, kAttention = 2 };

// "ffn rank" or "session": how a role's index is called in messages.
std::string_view role_index_name(Role role);

// What all segments of one instance have in common.
struct InstanceIdentity {
    uint64_t instance_id = 0;    // The random part of the segment names.
    std::string model_identity;  // Hash of config, tensor index and sampled bytes; <= 127 bytes.
    // Instruction-set path, kernel revision, quantisation, window dtype; <= 127 bytes.
    std::string numeric_class;
    RouterPlacement router = RouterPlacement::kAttention;
    RowDtype row_dtype = RowDtype::kBf16;
};

struct SegmentHeader {
    uint64_t magic;
    uint32_t layout_version;
    uint32_t header_bytes;  // sizeof(SegmentHeader)
    Role role;
    uint32_t index;  // FFN rank or session.
    uint64_t instance_id;
    Geometry geometry;
    std::array<char, 128> model_identity;  // Padded with NUL.
    std::array<char, 128> numeric_class;   // Padded with NUL.
    RouterPlacement router;
    RowDtype row_dtype;
    std::array<uint8_t, 184> reserve;
};
static_assert(std::is_standard_layout_v<SegmentHeader>, "lives in shared memory");
static_assert(std::is_trivially_copyable_v<SegmentHeader>, "copied once, then checked");
static_assert(sizeof(SegmentHeader) == kHeaderBytes, "the place WindowLayout keeps for it");

// Errors: kInvalidArgument if a string of `identity` is too long.
Result<SegmentHeader> make_segment_header(const Geometry& geometry,
                                          const InstanceIdentity& identity,
                                          Role role,
                                          uint32_t index);

// Compares a private copy of a header with the expected one, field by field in declaration order.
// Errors: kFailedPrecondition naming the first field that differs and both values.
Result<> check(const SegmentHeader& found, const SegmentHeader& expected);

}  // namespace afd::schedule
