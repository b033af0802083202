// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>

#include "tests/daemon/attention/sequence_requests.h"

namespace afd::daemon {
namespace {

// Goal: no order of events makes a running sequence lack a block. Method: sequences that begin
// alike come at random, as many as their reservations allow, compute some of what is ready, produce
// tokens, end early and are cancelled, in tables of each kind that have little room. Oracle: take()
// itself, which dies of a block too few; who has rows to compute gets some ready in the end; all is
// free at the end.
class SequenceTableAtRandom : public testing::TestWithParam<std::tuple<bool, bool, bool>> {
  protected:
    static constexpr uint32_t kContext = 64 * 24;

    uint32_t draw(uint32_t end) { return static_cast<uint32_t>(random_()) % end; }

    void come() {
        const uint32_t num_prompt = 1 + draw(900);
        std::unique_ptr<SequenceRequest> request = prompt_of(next_id_, num_prompt, draw(3));
        // Few different beginnings.
        request->tokens[0] = draw(2);
        request->max_total_tokens = std::min(num_prompt + 1 + draw(400), kContext);
        if (table_.admit(request).ok()) ++next_id_;
    }

    void go_on(Sequence& sequence) {
        if (const uint32_t num_ready = sequence.num_ready()) {
            const uint32_t count = 1 + draw(num_ready);
            compute(table_, sequence, sequence.num_scheduled + count);
            const bool is_last = sequence.num_scheduled == sequence.num_tokens();
            if (is_last && sequence.num_tokens() + 1 < sequence.request->max_total_tokens) {
                sequence.request->tokens.push_back(draw(3));
            } else if (is_last) {
                sequence.is_ending = true;
            }
        }
        table_.move_on(sequence);
        if (draw(100) == 0) sequence.is_ending = true;
        if (sequence.is_ending) table_.release(sequence);
    }

    const bool is_windowed_ = std::get<1>(GetParam());
    const bool is_mixed_ = std::get<2>(GetParam());
    std::mt19937 random_{7};
    uint64_t next_id_ = 1;
    SequenceTable table_{6,
                         2,
                         40,
                         kContext,
                         std::get<0>(GetParam()),
                         is_windowed_ ? kWindow : 0,
                         is_mixed_ ? WindowedBlocks{40, kWindow} : WindowedBlocks{}};
};

TEST_P(SequenceTableAtRandom, NobodyLacksABlock) {
    for (int round = 0; round < 30'000; ++round) {
        if (draw(8) == 0) come();
        if (table_.active().empty()) continue;
        table_.look_for_prefixes();
        const auto active = table_.active();
        const bool has_work = std::any_of(
            active.begin(), active.end(), [](const Sequence* one) { return one->num_ready() > 0; });
        ASSERT_TRUE(has_work) << "round " << round << ": all of " << active.size() << " wait";
        go_on(*active[draw(static_cast<uint32_t>(active.size()))]);
    }
    while (!table_.active().empty()) table_.release(*table_.active()[0]);
    EXPECT_EQ(table_.num_kv_blocks_used(), 0U);
    EXPECT_EQ(table_.num_windowed_blocks_used(), 0U);
    EXPECT_GT(next_id_, 100U);
}

INSTANTIATE_TEST_SUITE_P(Kinds,
                         SequenceTableAtRandom,
                         testing::Values(std::tuple(false, false, false),
                                         std::tuple(true, false, false),
                                         std::tuple(false, true, false),
                                         std::tuple(true, true, false),
                                         std::tuple(false, false, true),
                                         std::tuple(true, false, true)));

}  // namespace
}  // namespace afd::daemon
