// SPDX-License-Identifier: Apache-2.0
//
// The way back of the two-phase dispatch: each token's rows, from any buffers and in any blocks,
// are added with k ascending.

#include <gtest/gtest.h>

#include <cstring>

#include "tests/ops/two_phase/two_phase_case.h"

namespace afd::ops {
namespace {

using test::Cluster;
using test::describe;
using test::expect_ok;
using test::kPaths;
using test::kReference;
using test::kSizes;
using test::Path;
using test::Sender;
using test::Size;
using test::Tensor;

// Goal: the way back meets the formula bit by bit, in blocks of any size, in one or several calls.
// Oracle: each token's rows, found by the single pass, added with k ascending.
// Covers: two_phase_combine recv_y=bf16,fp16 block_size=1,7,8192 first_block=0,1 num_blocks=-1,1
// Covers: two_phase_combine num_ranks=1,2,3,5,31 num_local_experts=any shared_expert_num=0,1,2
// Covers: two_phase_combine session_id=0,1,2 layer_id=1 case=progress_in_done
TEST(TwoPhaseCombine, AddsRowsByKWhateverOrderTheyLieIn) {
    for (const Size& size : kSizes) {
        for (const DType dtype : {DType::kBf16, DType::kFp16}) {
            Cluster c(size, dtype);
            c.mask_every(4);
            c.dispatch(kReference);
            Tensor recv_y(dtype, {c.recv_x.view.shape[0], size.hidden});
            recv_y.fill(9);
            const std::vector<Cluster::Item> items = c.single_pass();
            for (size_t i = 0; i < size.num_senders; ++i) {
                Tensor want(dtype, {size.num_tokens, size.hidden});
                const size_t num_slots = c.slots_per_token();
                std::vector<int64_t> row_of(size.num_tokens * num_slots, -1);
                for (size_t row = 0; row < items.size(); ++row) {
                    const auto [rank, local, sender, slot] = items[row];
                    if (sender == i) row_of[slot] = static_cast<int64_t>(row);
                }
                for (size_t out = 0; out < want.view.num_elements(); ++out) {
                    const size_t token = out / size.hidden;
                    float sum = 0.0f;
                    for (size_t k = 0; k < num_slots; ++k) {
                        const int64_t row = row_of[token * num_slots + k];
                        if (row < 0) continue;
                        const size_t at =
                            static_cast<size_t>(row) * size.hidden + out % size.hidden;
                        const float weight =
                            k < size.top_k
                                ? c.senders[i].weights.as<float>()[token * size.top_k + k]
                                : 1.0f;
                        const float product =
                            reference::element(dtype, recv_y.bytes.data(), at) * weight;
                        sum = sum + product;
                    }
                    reference::set_element(dtype, want.as<void>(), out, sum);
                }
                for (const int64_t block_size : {1, 7, 8192}) {
                    c.block_size = block_size;
                    for (const Path path : kPaths) {
                        SCOPED_TRACE(describe(c, path));
                        expect_ok(c.layout_of(i), path);
                        Tensor y(dtype, {size.num_tokens, size.hidden});
                        expect_ok(c.combine_of(i, recv_y, y), path);
                        ASSERT_EQ(y.bytes, want.bytes);
                        Tensor done(DType::kInt64,
                                    {size.num_ranks, static_cast<size_t>(c.num_local)});
                        std::fill_n(done.as<int64_t>(), done.view.num_elements(), 0);
                        Tensor streamed(y.view);
                        TwoPhaseCombineRequest r = c.combine_of(i, recv_y, streamed);
                        r.done = done.view;
                        if (size.num_tokens > 0) {
                            r.num_blocks = 1;
                            expect_ok(r, path);
                            r.first_block = 1;
                            r.num_blocks = -1;
                        }
                        expect_ok(r, path);
                        ASSERT_EQ(streamed.bytes, want.bytes);
                    }
                }
            }
        }
    }
}

// Rows that come beside the dispatch are added last with weight 1: as if the same rows had been
// those of dispatched shared experts.
TEST(TwoPhaseCombine, AddsRowsOfASharedStageLast) {
    const Size plain{.num_tokens = 30, .top_k = 3, .num_routed = 7, .num_ranks = 2, .hidden = 17};
    Cluster c(plain);
    c.senders[0].ids.fill_ids(4, 0, 6);
    c.dispatch(kReference);
    Tensor shared(DType::kBf16, {30, 2, 17});
    shared.fill(5);
    for (const int64_t block_size : {1, 7, 8192}) {
        c.block_size = block_size;
        for (const Path path : kPaths) {
            SCOPED_TRACE(describe(c, path));
            expect_ok(c.layout_of(0), path);
            Tensor y(DType::kBf16, {30, 17});
            TwoPhaseCombineRequest r = c.combine_of(0, c.recv_x, y);
            r.shared_rows = shared.view;
            expect_ok(r, path);
            for (size_t token = 0; token < 30; ++token) {
                for (size_t h = 0; h < 17; ++h) {
                    const Bf16* x = c.senders[0].x.as<Bf16>() + token * 17 + h;
                    const Bf16* added = shared.as<Bf16>() + token * 34 + h;
                    float sum = 0.0f;
                    for (size_t k = 0; k < 3; ++k) {
                        const float weight = c.senders[0].weights.as<float>()[token * 3 + k];
                        const float product = to_float(*x) * weight;
                        sum = sum + product;
                    }
                    sum = sum + to_float(added[0]);
                    sum = sum + to_float(added[17]);
                    ASSERT_EQ(from_float(sum), y.as<Bf16>()[token * 17 + h]) << token << "," << h;
                }
            }
        }
    }
}

// Dispatch, experts that do nothing, and weights 1/K restore the rows; also rank by rank from
// separate buffers, and in windowed chunks: slices of the tokens, each a dispatch of its own.
// Covers: two_phase_combine case=restores_the_rows case=windowed_chunks
TEST(TwoPhaseCombine, DispatchAndCombineWithEqualWeightsRestoreTheRows) {
    const Size size{.num_tokens = 60, .top_k = 4, .num_routed = 13, .num_ranks = 3, .hidden = 17};
    Cluster c(size);
    c.senders[0].ids.fill_ids(2, 0, 12);
    std::fill_n(c.senders[0].weights.as<float>(), 240, 0.25f);
    c.block_size = 7;
    for (const Path path : kPaths) {
        c.dispatch(path);
        Tensor y(DType::kBf16, {60, 17});
        expect_ok(c.combine_of(0, c.recv_x, y), path);
        EXPECT_EQ(y.bytes, c.senders[0].x.bytes);

        expect_ok(c.offsets(false), path);
        std::vector<ConstTensorView> parts;
        size_t first = 0;
        for (const int64_t total : c.recv_total.values<int64_t>()) {
            const auto num_rows = static_cast<size_t>(total);
            parts.push_back(make_tensor<const void>(
                c.recv_x.as<Bf16>() + first * 17, DType::kBf16, {num_rows, 17}));
            first += num_rows;
        }
        Tensor of_parts(y.view);
        TwoPhaseCombineRequest r = c.combine_of(0, {}, of_parts);
        r.senders = parts;
        expect_ok(r, path);
        EXPECT_EQ(of_parts.bytes, c.senders[0].x.bytes);

        for (const size_t first_token : {0, 20, 40}) {
            Size slice = size;
            slice.num_tokens = 20;
            Cluster chunk(slice);
            Sender& sender = chunk.senders[0];
            std::copy_n(c.senders[0].x.as<Bf16>() + first_token * 17, 340, sender.x.as<Bf16>());
            std::copy_n(
                c.senders[0].ids.as<int32_t>() + first_token * 4, 80, sender.ids.as<int32_t>());
            std::fill_n(sender.weights.as<float>(), 80, 0.25f);
            chunk.dispatch(path);
            Tensor z(DType::kBf16, {20, 17});
            expect_ok(chunk.combine_of(0, chunk.recv_x, z), path);
            EXPECT_EQ(std::memcmp(z.as<Bf16>(), c.senders[0].x.as<Bf16>() + first_token * 17, 680),
                      0);
        }
    }
}

}  // namespace
}  // namespace afd::ops
