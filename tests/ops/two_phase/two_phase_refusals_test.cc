// SPDX-License-Identifier: Apache-2.0

// What the two-phase operators refuse, by the whole message.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/ops/two_phase/two_phase_case.h"

namespace afd::ops {
namespace {

using test::Cluster;
using test::kPaths;
using test::kReference;
using test::Path;
using test::run;
using test::Tensor;

// Negative tests: a valid request, one thing wrong, the whole message; nothing is written.
class TwoPhaseRefuses : public testing::Test {
  protected:
    TwoPhaseRefuses() {
        // Four rows of routed experts, and the three of the shared one.
        c_.senders[0].ids.set<int32_t>({0, 2, 1, 0, -1, 4});
        c_.dispatch(kReference);
    }

    template <typename Request, typename Change>
    std::string message(Request request, const TensorView& output, const Change& change) {
        change(request);
        const auto* bytes = static_cast<const std::byte*>(output.data);
        const std::vector<std::byte> before(bytes,
                                            bytes + output.num_elements() * size_of(output.dtype));
        const Result<> plain = run(request, kReference);
        const Result<> fast = run(request, {false, 2});
        EXPECT_TRUE(std::equal(before.begin(), before.end(), bytes));
        if (fast.ok() || plain.ok()) return "accepted";
        EXPECT_EQ(fast.error().code, Code::kInvalidArgument);
        EXPECT_EQ(fast.error().message, plain.error().message);
        return fast.error().message;
    }
    template <typename Change>
    std::string layout(const Change& change) {
        const TwoPhaseLayoutRequest r = c_.layout_of(0);
        return message(r, r.sorted_indices, change);
    }
    template <typename Change>
    std::string payload(const Change& change) {
        return message(c_.payload_of(0), c_.recv_x.view, change);
    }
    template <typename Change>
    std::string combine(const Change& change) {
        return message(c_.combine_of(0, c_.recv_x, y_), y_.view, change);
    }

    using Layout = TwoPhaseLayoutRequest;
    using Payload = TwoPhasePayloadRequest;
    using Combine = TwoPhaseCombineRequest;
    // Experts 0 and 2 on rank 0 with local ids 0 and 1, 1 and the shared 3 on rank 1.
    Cluster c_{{.num_tokens = 3, .top_k = 2, .num_shared = 1, .num_routed = 3, .num_ranks = 2}};
    Tensor y_{DType::kBf16, {3, 5}};
};

TEST_F(TwoPhaseRefuses, AttributesOutOfRange) {
    EXPECT_EQ(layout([](Layout& r) { r.num_ranks = 0; }),
              "two_phase_layout: num_ranks is 0; allowed are 1 to 1024");
    EXPECT_EQ(layout([](Layout& r) { r.num_local_experts = 65537; }),
              "two_phase_layout: num_local_experts is 65537; allowed are 1 to 65536");
    EXPECT_EQ(layout([](Layout& r) { r.shared_expert_num = 5; }),
              "two_phase_layout: shared_expert_num is 5; allowed are 0 to 4");
    EXPECT_EQ(layout([](Layout& r) { r.session_id = -1; }),
              "two_phase_layout: session_id is -1; allowed are 0 to 1023");
    EXPECT_EQ(layout([](Layout& r) { r.block_size = 0; }),
              "two_phase_layout: block_size is 0; allowed are 1 to 1048576");
    EXPECT_EQ(layout([](Layout& r) { r.layer_id = 3; }),
              "two_phase_layout: layer_id is 3; expert_rank_table has 3 layers");
    EXPECT_EQ(payload([](Payload& r) { r.quant_mode = 0; }),
              "two_phase_payload: quant_mode is 0; allowed are -1, 1");
    EXPECT_EQ(payload([](Payload& r) { r.first_block = 2; }),
              "two_phase_payload: first_block is 2; there are 1 blocks");
    EXPECT_EQ(payload([](Payload& r) { r.num_blocks = 2; }),
              "two_phase_payload: num_blocks is 2 from first_block 0; there are 1 blocks");
    EXPECT_EQ(combine([](Combine& r) { r.first_block = 1; }),
              "two_phase_combine: first_block is 1; above 0 done is needed");
}

TEST_F(TwoPhaseRefuses, ATableThatPlacesAnExpertNowhereOutsideOrTwice) {
    int32_t* pairs = c_.table.as<int32_t>() + 4 * 2;  // Layer 1.
    pairs[2] = -1;
    EXPECT_EQ(layout([](Layout&) {}), "two_phase_layout: expert_rank_table[1, 1] has no replica");
    pairs[2] = 2;
    EXPECT_EQ(payload([](Payload&) {}),
              "two_phase_payload: expert_rank_table[1, 1, 0] is (2, 0); the rank must be below "
              "num_ranks, 2");
    pairs[2] = 1;
    pairs[3] = 2;
    EXPECT_EQ(
        combine([](Combine&) {}),
        "two_phase_combine: expert_rank_table[1, 1, 0] is (1, 2); the local id must be 0 to 1");
    pairs[3] = 1;
    EXPECT_EQ(layout([](Layout&) {}),
              "two_phase_layout: expert_rank_table[1, 3, 0] is (1, 1); this place is given twice");
    Tensor narrow(DType::kInt32, {3, 0, 1, 2});
    EXPECT_EQ(layout([&](Layout& r) { r.expert_rank_table = narrow.view; }),
              "two_phase_layout: shared_expert_num is 1; expert_rank_table has 0 experts a layer");
}

TEST_F(TwoPhaseRefuses, ShapesAndDtypesThatDoNotFit) {
    Tensor wide(DType::kInt64, {3, 2});
    EXPECT_EQ(layout([&](Layout& r) { r.expert_ids = wide.view; }),
              "two_phase_layout: expert_ids has dtype int64; allowed are int32");
    Tensor short_indices(DType::kInt32, {6});
    EXPECT_EQ(layout([&](Layout& r) { r.sorted_indices = short_indices.view; }),
              "two_phase_layout: sorted_indices has shape [6]; it must be "
              "[N*K+N*shared_expert_num] with N = 3 (expert_ids), K = 2 (expert_ids), "
              "shared_expert_num = 1");
    Tensor many;
    many.view = make_tensor<void>(many.bytes.data(), DType::kInt32, {size_t{1} << 30, 1});
    EXPECT_EQ(layout([&](Layout& r) { r.expert_ids = many.view; }),
              "two_phase_layout: expert_ids has 1073741824 tokens of 2 slots, shared experts "
              "included; at most 2147483647 of both are allowed");
    Tensor mask(DType::kBool, {2});
    EXPECT_EQ(
        layout([&](Layout& r) { r.active_mask = mask.view; }),
        "two_phase_layout: active_mask has shape [2]; it must be [N] with N = 3 (expert_ids)");
    Tensor scales(DType::kFp32, {3, 4, 5});
    EXPECT_EQ(payload([&](Payload& r) { r.scales = scales.view; }),
              "two_phase_payload: quant_mode is -1; scales are for quant_mode 1");
    EXPECT_EQ(payload([](Payload& r) { r.quant_mode = 1; }),
              "two_phase_payload: recv_x has dtype bf16; it must be int8 with quant_mode 1");
    Tensor q(DType::kInt8, {7, 5});
    EXPECT_EQ(payload([&](Payload& r) {
                  r.quant_mode = 1;
                  r.recv_x = q.view;
              }),
              "two_phase_payload: recv_scale is missing; it must be [P] with quant_mode 1");
    Tensor half(DType::kFp16, {3, 5});
    EXPECT_EQ(combine([&](Combine& r) { r.y = half.view; }),
              "two_phase_combine: y has dtype fp16; it must be that of recv_y, bf16");
}

TEST_F(TwoPhaseRefuses, SegmentsThatAreNotOnePerRankOrDoNotFit) {
    const TwoPhaseReceiveBuffer receivers[2] = {{c_.recv_x.view, {}}, {y_.view, {}}};
    const Tensor narrow(DType::kBf16, {3, 4});
    const TwoPhaseReceiveBuffer bad[2] = {{c_.recv_x.view, {}}, {narrow.view, {}}};
    EXPECT_EQ(payload([&](Payload& r) { r.receivers = std::span(receivers, 1); }),
              "two_phase_payload: receivers has 1 entries; it must have num_ranks, 2");
    EXPECT_EQ(payload([&](Payload& r) { r.receivers = bad; }),
              "two_phase_payload: receivers[1] has recv_x bf16 [3, 4] and recv_scale bf16 []; it "
              "must have bf16 [P, 5] and, with quant_mode 1, fp32 [P]");
    const ConstTensorView rows[2] = {c_.recv_x.view, narrow.view};
    EXPECT_EQ(combine([&](Combine& r) { r.senders = std::span(rows, 1); }),
              "two_phase_combine: senders has 1 entries; it must have num_ranks, 2");
    EXPECT_EQ(combine([&](Combine& r) { r.senders = rows; }),
              "two_phase_combine: senders[1] must be contiguous bf16 [P, 5], as y is");
    const Tensor shared(DType::kBf16, {3, 1, 4});
    EXPECT_EQ(combine([&](Combine& r) { r.shared_rows = shared.view; }),
              "two_phase_combine: shared_rows must be contiguous [N, J, H] of the dtype of y, "
              "[3, J, 5] bf16");
    const Tensor good(DType::kBf16, {3, 1, 5});
    EXPECT_EQ(combine([&](Combine& r) { r.shared_rows = good.view; }),
              "two_phase_combine: shared_expert_num is 1; with shared_rows it must be 0");
}

// Values that an earlier phase or a peer got wrong end as errors, never as rows out of bounds.
TEST_F(TwoPhaseRefuses, GrantsIndicesAndProgressThatContradictEachOther) {
    int32_t* counts = c_.senders[0].counts.as<int32_t>();
    const auto num_rows = static_cast<int64_t>(c_.recv_x.view.shape[0]);
    const std::string rows = std::to_string(num_rows);
    // The shared expert has three rows, the last ones.
    ASSERT_EQ(counts[3], 3);
    int64_t* base = c_.base.as<int64_t>();
    for (const int64_t wrong : {int64_t{-1}, num_rows - 2, INT64_MAX}) {
        base[3] = wrong;
        EXPECT_EQ(payload([](Payload&) {}),
                  "two_phase_payload: base[1, 1] is " + std::to_string(wrong) +
                      "; 3 rows must fit into the rank's " + rows);
    }
    base[3] = num_rows - 3;
    counts[3] = 2;
    EXPECT_EQ(payload([](Payload&) {}),
              "two_phase_payload: send_counts[1, 1] is 2; sorted_indices has more rows for it");
    counts[3] = 3;
    Tensor done(DType::kInt64, {2, 2});
    done.set<int64_t>({0, 0, 0, 4});
    EXPECT_EQ(combine([&](Combine& r) { r.done = done.view; }),
              "two_phase_combine: done[1, 1] is 4; it must be 0 to send_counts, 3");
    done.set<int64_t>({0, 0, 0, 1});
    EXPECT_EQ(combine([&](Combine& r) { r.done = done.view; }),
              "two_phase_combine: send_counts[1, 1] is 3; sorted_indices has more rows for it");
    int32_t* sorted = c_.senders[0].sorted.as<int32_t>();
    for (const int32_t wrong : {-2, 9}) {
        sorted[0] = wrong;
        EXPECT_EQ(payload([](Payload&) {}),
                  "two_phase_payload: sorted_indices[0] is " + std::to_string(wrong) +
                      "; it must be -1 or a slot of its block, 0 to 8");
    }
    c_.senders[0].ids.as<int32_t>()[2] = -5;
    sorted[0] = 3;
    EXPECT_EQ(payload([](Payload&) {}), "two_phase_payload: sorted_indices[0] is 3, a masked slot");
}

// Two grants of one place, and a slot that is sent twice, would write rows over each other.
TEST_F(TwoPhaseRefuses, RowsThatAreWrittenTwice) {
    int64_t* base = c_.base.as<int64_t>();
    const int32_t* counts = c_.senders[0].counts.as<int32_t>();
    const int64_t last = base[3];
    size_t other = 0;
    while (counts[other] == 0) ++other;
    ASSERT_LT(other, 3U);
    base[3] = base[other];
    const std::string refused = payload([](Payload&) {});
    EXPECT_NE(refused.find("two_phase_payload: base["), std::string::npos) << refused;
    EXPECT_NE(refused.find("overlaps it"), std::string::npos) << refused;
    base[3] = last;
    int32_t* sorted = c_.senders[0].sorted.as<int32_t>();
    const int32_t first = sorted[0];
    sorted[1] = first;
    EXPECT_EQ(payload([](Payload&) {}),
              "two_phase_payload: sorted_indices[1] is " + std::to_string(first) + " behind " +
                  std::to_string(first) +
                  "; slots ascend by place of their expert, then by number, and none is listed "
                  "twice");
}

TEST_F(TwoPhaseRefuses, CountsBelowZero) {
    int32_t* counts = c_.senders[0].counts.as<int32_t>();
    const int32_t last = counts[3];
    counts[3] = -1;
    EXPECT_EQ(payload([](Payload&) {}),
              "two_phase_payload: send_counts[1, 1] is -1; it must not be negative");
    counts[3] = last;
    c_.all_counts.as<int32_t>()[2] = -7;
    EXPECT_EQ(message(c_.offsets(false), c_.base.view, [](TwoPhaseOffsetsRequest&) {}),
              "two_phase_offsets: send_counts[2] is -7; it must not be negative");
}

}  // namespace
}  // namespace afd::ops
