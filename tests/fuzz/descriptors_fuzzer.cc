// SPDX-License-Identifier: Apache-2.0
//
// What attention workers write into an FFN window, and what a rank finds of its predecessor. Input:
// a router; then, round after round, the words of all descriptors of a rank and its control words.
// Oracle: every id that the scan gives on is one that the rank holds, and every descriptor that was
// taken is acknowledged.

#include <array>
#include <vector>

#include "proto/check.h"
#include "schedule/dispatch/ready_scan.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/schedule/protocol/local_instance.h"

namespace afd::schedule {
namespace {

constexpr uint32_t kRank = 1;
constexpr size_t kDescriptorWords = 2 + 3 * 3;

std::span<std::byte> bytes_of(int32_t* words, size_t count) {
    return std::as_writable_bytes(std::span(words, count));
}

void spoil(fuzz::FuzzInput& input, LocalInstance& instance) {
    for (uint32_t session = 0; session < 2; ++session) {
        for (uint32_t m = 0; m < 2; ++m) {
            input.fill(bytes_of(instance.descriptor(kRank, session, m), kDescriptorWords));
            input.fill(bytes_of(instance.acknowledged(kRank, session, m), 1));
            input.fill(bytes_of(instance.result_flag(session, m, 0, 0), 9));
        }
    }
}

void take_one(ReadyScan& scan, const ExpertPlacement& placement) {
    const auto ready = scan.scan(0);
    if (ready.empty()) return;
    const std::vector<ReadyDescriptor> pass{ready.front()};
    scan.take(pass);
    for (size_t i = 0; i < scan.taken().size(); ++i) {
        const ReadyDescriptor& taken = scan.taken()[i];
        AFD_ASSERT(taken.session < 2 && taken.micro_batch < 2 && taken.round > 0 &&
                       taken.layer_id >= 0 && taken.layer_id < 2,
                   "session %u, micro-batch %u, round %d, layer %d",
                   taken.session,
                   taken.micro_batch,
                   taken.round,
                   taken.layer_id);
        for (const int32_t id : scan.ids(i)) {
            const bool is_held = placement.holds(kRank, taken.layer_id, id);
            AFD_ASSERT(id == kMaskedId || is_offered_id(id) || is_held, "id %d", id);
        }
    }
    scan.acknowledge_taken();
}

void run(fuzz::FuzzInput& input) {
    LocalInstance instance(small_geometry());
    const ExpertPlacement placement = test_placement(2, 2);
    const auto router =
        input.take<uint8_t>() % 2 == 0 ? RouterPlacement::kAttention : RouterPlacement::kFfn;
    const auto transport = instance.returns(kRank);
    spoil(input, instance);
    ReadyScan scan(*transport, placement, router);
    for (int round = 0; round < 16 && !input.is_empty(); ++round) {
        spoil(input, instance);
        take_one(scan, placement);
    }
}

}  // namespace
}  // namespace afd::schedule

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    afd::fuzz::FuzzInput input(data, size);
    afd::schedule::run(input);
    return 0;
}
