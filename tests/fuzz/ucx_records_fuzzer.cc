// SPDX-License-Identifier: Apache-2.0
//
// The rows of a message over UCX. Input: what the receiver knows of its geometry, the header's
// number of rows, and the bytes behind it. Oracle: records that are called valid lie inside of the
// bytes, name a slot that there is and no more bytes than a row has. What the ends make of them is
// tested with messages of any bytes (UcxTransport.*).

#include <algorithm>
#include <cstring>
#include <vector>

#include "proto/check.h"
#include "schedule/ucx/ucx_outbox.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

using afd::schedule::UcxRecord;
using afd::schedule::UcxRecords;

void read_all(const UcxRecords& records, size_t row_bytes, size_t num_slots) {
    std::vector<std::byte> row(row_bytes);
    for (uint32_t i = 0; i < records.size(); ++i) {
        const UcxRecord record = records.record(i);
        const bool is_refused = record.bytes == UcxRecord::kRefused;
        AFD_ASSERT(record.slot < num_slots && (is_refused || record.bytes <= row_bytes),
                   "slot %u of %zu, %u bytes of %zu",
                   record.slot,
                   num_slots,
                   record.bytes,
                   row_bytes);
        // The sanitizer's part: all of a row is there.
        if (!is_refused) std::memcpy(row.data(), records.row(i), row_bytes);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    afd::fuzz::FuzzInput input(data, size);
    const size_t row_bytes = 1 + input.take<uint8_t>();
    const size_t num_slots = 1 + input.take<uint8_t>();
    afd::schedule::UcxHeader header{};
    header.num_rows = input.take<uint32_t>();
    // Memory of its own, so that what is read behind it is found.
    const std::string_view text = input.text();
    std::vector<std::byte> bytes(text.size());
    if (!text.empty()) std::memcpy(bytes.data(), text.data(), text.size());
    const UcxRecords records(header, bytes, row_bytes, num_slots);
    if (records.is_valid()) read_all(records, row_bytes, num_slots);
    return 0;
}
