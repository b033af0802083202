// SPDX-License-Identifier: Apache-2.0
//
// The control area of two-phase rounds, both directions. Input: again and again the words of a
// session for a rank, or of the rank for the session. Oracle: what a side accepts is within the
// limits of a call, and grants are inside the segment.

#include <array>
#include <vector>

#include "proto/check.h"
#include "schedule/shared_memory/shm_two_phase.h"
#include "schedule/two_phase/two_phase_receiver.h"
#include "schedule/two_phase/two_phase_sender.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/schedule/protocol/local_instance.h"

namespace afd::schedule {
namespace {

constexpr uint32_t kExperts = 4;
constexpr TwoPhaseCall kCall{.num_tokens = 6, .block_tokens = 2, .selected_expert_num = 2};
constexpr TwoPhaseRowBytes kRowBytes{64, 64};

// One session and one rank that holds four experts in two layers.
struct Pair {
    Pair()
        : placement(ExpertPlacement::round_robin(
                        std::vector<LayerExperts>(2, LayerExperts{kExperts, 0}), 1)
                        .value()),
          layout(TwoPhaseControlLayout::compute(
              {.num_sessions = 1, .num_experts = kExperts, .num_ffn_workers = 1})),
          session(zeroed_bytes(layout.session_bytes())),
          rank(zeroed_bytes(layout.rank_bytes())),
          dispatch(
              layout, 0, session.get(), {rank.get()}, {DoorbellRinger(&armed[0], fds[0])}, memory),
          returns(
              layout, 0, rank.get(), {session.get()}, {DoorbellRinger(&armed[1], fds[1])}, memory) {
    }

    ExpertPlacement placement;
    TwoPhaseControlLayout layout;
    EventFds fds{2};
    std::array<int32_t, 2> armed{};
    Bytes session;
    Bytes rank;
    NamedTwoPhaseMemory memory{"/none"};
    ShmTwoPhaseDispatch dispatch;
    ShmTwoPhaseReturn returns;
};

void receive(Pair& pair) {
    TwoPhaseReceiver receiver(pair.returns,
                              pair.placement,
                              {.num_experts = kExperts, .row_bytes = kRowBytes, .call = kCall});
    const int32_t round = receiver.open_round(0, Order::kAcquire);
    static_cast<void>(receiver.is_closed(0, round, Order::kAcquire));
    static_cast<void>(receiver.granted(0, round));
    static_cast<void>(receiver.num_unfinished(0, round));
    TwoPhaseOffer offer;
    if (!receiver.copy_offer(0, offer).ok()) return;
    const TwoPhaseSizes sizes = two_phase_sizes(offer, kRowBytes);
    const TwoPhaseSizes sizes_max = two_phase_sizes_max(kCall, kExperts, kRowBytes);
    AFD_ASSERT(offer.num_rows() <= kCall.num_rows() && offer.num_blocks <= kCall.num_blocks() &&
                   sizes.receive_bytes <= sizes_max.receive_bytes &&
                   sizes.return_bytes <= sizes_max.return_bytes,
               "%llu rows in %u blocks",
               static_cast<unsigned long long>(offer.num_rows()),
               offer.num_blocks);
    AFD_ASSERT(receiver.sent(0, offer.num_blocks, Order::kAcquire) <= offer.num_blocks &&
                   receiver.combined(0, offer.num_blocks, Order::kAcquire) <= offer.num_blocks,
               "more than %u blocks",
               offer.num_blocks);
    const auto returned = receiver.copy_returned(0, offer.num_blocks);
    AFD_ASSERT(!returned.ok() || returned.value() <= offer.num_blocks,
               "more than %u blocks",
               offer.num_blocks);
}

void send(Pair& pair, fuzz::FuzzInput& input) {
    TwoPhaseSender sender(pair.dispatch);
    if (!sender.may_begin(Order::kAcquire)) return;
    sender.begin();
    const TwoPhaseOffer offer{1, 3, 4, {5, 0, 4, 2}};
    sender.offer(0, offer);
    input.fill(std::span(pair.rank.get(), pair.layout.rank_bytes()));
    static_cast<void>(sender.wait_info(0));
    AFD_ASSERT(sender.returned(0, 3, Order::kAcquire) <= 3, "more than 3 blocks");
    std::vector<int64_t> grants(kExperts);
    if (sender.answer(0, Order::kAcquire) == TwoPhaseSender::Answer::kGranted &&
        sender.copy_grants(0, offer, grants).ok()) {
        for (size_t expert = 0; expert < kExperts; ++expert) {
            AFD_ASSERT(grants[expert] >= 0 &&
                           static_cast<uint64_t>(grants[expert] + offer.counts[expert]) <=
                               offer.num_rows(),
                       "expert %zu at row %lld",
                       expert,
                       static_cast<long long>(grants[expert]));
        }
    }
    sender.close();
}

void run(fuzz::FuzzInput& input) {
    Pair pair;
    for (int step = 0; step < 8 && !input.is_empty(); ++step) {
        if (input.take<uint8_t>() % 2 == 0) {
            input.fill(std::span(pair.session.get(), pair.layout.session_bytes()));
            input.fill(std::span(pair.rank.get(), sizeof(TwoPhaseRankWords)));
            receive(pair);
        } else {
            send(pair, input);
        }
    }
}

}  // namespace
}  // namespace afd::schedule

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    afd::fuzz::FuzzInput input(data, size);
    afd::schedule::run(input);
    return 0;
}
