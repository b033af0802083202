// SPDX-License-Identifier: Apache-2.0
#include "schedule/shared_memory/two_phase_memory.h"

namespace afd::schedule {

Result<std::byte*> ShmTwoPhaseMemory::map(const TwoPhaseKey& key,
                                          uint64_t bytes,
                                          Segment::Access access) {
    // A round without rows for this rank has no return segment.
    if (bytes == 0) return nullptr;
    const std::string name =
        two_phase_segment_name(prefix_, key.segment, key.rank, key.session, key.round);
    AFD_ASSIGN(Segment segment, Segment::attach(name, bytes, access));
    // One system call now instead of a fault for each page between the rows.
    AFD_TRY(segment.prefault(0, bytes));
    std::byte* address = access == Segment::Access::kReadWrite
                             ? segment.data()
                             : const_cast<std::byte*>(segment.const_data());
    mapped_[key] = std::move(segment);
    return address;
}

}  // namespace afd::schedule
