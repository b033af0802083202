// SPDX-License-Identifier: Apache-2.0
#pragma once

// Cluster: senders with their inputs, receivers in one buffer and the single pass as the oracle,
// for the tests of the two-phase dispatch.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "ops/reference/two_phase.h"
#include "ops/tensor/workspace.h"
#include "tests/ops/test_data.h"
#include "tests/ops/test_tensor.h"

namespace afd::ops::test {

// How the operators of a test are run.
struct Path {
    bool is_reference = false;
    unsigned num_threads = 1;
};
inline constexpr Path kReference{true, 1};

inline Result<> run(const TwoPhaseLayoutRequest& r, Path path) {
    if (path.is_reference) return reference::two_phase_layout(r);
    threads::ThreadPool parallel(path.num_threads);
    const Workspace workspace(two_phase_layout_workspace_bytes(r, path.num_threads));
    return two_phase_layout(r, workspace.bytes(), parallel);
}

inline Result<> run(const TwoPhaseOffsetsRequest& r, Path path) {
    if (path.is_reference) return reference::two_phase_offsets(r);
    SerialParallel parallel;
    return two_phase_offsets(r, {}, parallel);
}

inline Result<> run(const TwoPhasePayloadRequest& r, Path path) {
    if (path.is_reference) return reference::two_phase_payload(r);
    threads::ThreadPool parallel(path.num_threads);
    const Workspace workspace(two_phase_payload_workspace_bytes(r));
    return two_phase_payload(r, workspace.bytes(), parallel);
}

inline Result<> run(const TwoPhaseCombineRequest& r, Path path) {
    if (path.is_reference) return reference::two_phase_combine(r);
    threads::ThreadPool parallel(path.num_threads);
    const Workspace workspace(two_phase_combine_workspace_bytes(r));
    return two_phase_combine(r, workspace.bytes(), parallel);
}

template <typename Request>
void expect_ok(const Request& request, Path path) {
    const Result<> result = run(request, path);
    ASSERT_TRUE(result.ok()) << result.error().message;
}

struct Size {
    size_t num_senders = 1;
    size_t num_tokens = 0;
    size_t top_k = 1;
    size_t num_shared = 0;
    size_t num_routed = 1;
    size_t num_ranks = 1;
    size_t num_replicas = 1;  // Of even experts; odd ones have one.
    size_t hidden = 5;
};

// Nothing, one of each, primes, dense layers, more ranks than experts.
inline const Size kSizes[] = {
    {.num_tokens = 0, .top_k = 2, .num_routed = 3, .num_ranks = 2},
    {.num_senders = 2, .num_tokens = 1, .top_k = 1, .num_routed = 1},
    {.num_senders = 3,
     .num_tokens = 13,
     .top_k = 3,
     .num_shared = 1,
     .num_routed = 7,
     .num_ranks = 2,
     .num_replicas = 2},
    {.num_tokens = 17,
     .top_k = 0,
     .num_shared = 1,
     .num_routed = 0,
     .num_ranks = 3,
     .num_replicas = 3},
    {.num_senders = 2,
     .num_tokens = 101,
     .top_k = 4,
     .num_shared = 2,
     .num_routed = 29,
     .num_ranks = 5,
     .num_replicas = 3,
     .hidden = 33},
    {.num_senders = 5,
     .num_tokens = 11,
     .top_k = 2,
     .num_routed = 64,
     .num_ranks = 31,
     .hidden = 1},
};

// Logical expert e lies on rank (e + i) mod F as its i-th replica, with the next free local id.
inline Tensor make_table(const Size& size, size_t num_layers, size_t layer, int64_t& num_local) {
    const size_t num_experts = size.num_routed + size.num_shared;
    Tensor table(DType::kInt32, {num_layers, num_experts, size.num_replicas, 2});
    std::fill_n(table.as<int32_t>(), table.view.num_elements(), -1);
    std::vector<int32_t> next(size.num_ranks, 0);
    for (size_t e = 0; e < num_experts; ++e) {
        const size_t count = e % 2 == 0 ? std::min(size.num_replicas, size.num_ranks) : 1;
        for (size_t i = 0; i < count; ++i) {
            const size_t rank = (e + i) % size.num_ranks;
            int32_t* pair =
                table.as<int32_t>() + ((layer * num_experts + e) * size.num_replicas + i) * 2;
            pair[0] = static_cast<int32_t>(rank);
            pair[1] = next[rank]++;
        }
    }
    num_local = std::max(1, *std::max_element(next.begin(), next.end()));
    return table;
}

// What one sender brings; row contents depend on sender and token.
struct Sender {
    Tensor x, ids, weights, mask, sorted, counts, done;

    Sender(const Size& size, DType dtype, size_t sender)
        : x(dtype, {size.num_tokens, size.hidden}),
          ids(DType::kInt32, {size.num_tokens, size.top_k}),
          weights(DType::kFp32, {size.num_tokens, size.top_k}) {
        for (size_t i = 0; i < x.view.num_elements(); ++i) {
            const auto row = static_cast<float>(sender * 37 + i / size.hidden + 1);
            reference::set_element(dtype, x.as<void>(), i, row + std::sin(static_cast<float>(i)));
        }
        // One id below and one above the experts, masked; and picks of the shared ones.
        ids.fill_ids(static_cast<uint32_t>(sender * 7 + size.num_tokens),
                     -1,
                     static_cast<int32_t>(size.num_routed + size.num_shared));
        weights.fill(static_cast<uint32_t>(sender + 3));
    }
};

// Several senders and all their receivers, whose rows lie in one buffer.
struct Cluster {
    Size size;
    int64_t num_local = 1;
    Tensor table;
    std::vector<Sender> senders;
    Tensor scales;  // Smooth scales, or not given.
    int64_t quant_mode = -1;
    int64_t block_size = 8192;
    DType dtype;

    Tensor all_counts, base, recv_total, group_list, recv_counts, recv_x, recv_scale;

    explicit Cluster(const Size& s, DType type = DType::kBf16)
        : size(s), table(make_table(s, 3, kLayer, num_local)), dtype(type) {
        for (size_t i = 0; i < s.num_senders; ++i) senders.emplace_back(s, type, i);
    }
    static constexpr size_t kLayer = 1;

    Cluster& mask_every(size_t period) {
        for (Sender& sender : senders) {
            sender.mask = Tensor(DType::kBool, {size.num_tokens});
            for (size_t n = 0; n < size.num_tokens; ++n) {
                sender.mask.as<bool>()[n] = n % period != 0;
            }
        }
        return *this;
    }
    Cluster& quantise(bool with_scales) {
        quant_mode = 1;
        if (!with_scales) return *this;
        scales = Tensor(DType::kFp32, {3, size.num_routed + size.num_shared, size.hidden});
        for (size_t i = 0; i < scales.view.num_elements(); ++i) {
            scales.as<float>()[i] = 0.25f + static_cast<float>(i % 61) / 32.0f;
        }
        return *this;
    }

    size_t slots_per_token() const { return size.top_k + size.num_shared; }

    template <typename Request>
    Request request_of(size_t sender) {
        Request r;
        r.num_ranks = static_cast<int64_t>(size.num_ranks);
        r.num_local_experts = num_local;
        r.shared_expert_num = static_cast<int64_t>(size.num_shared);
        r.session_id = static_cast<int64_t>(sender);
        r.layer_id = kLayer;
        r.block_size = block_size;
        r.expert_ids = senders[sender].ids.view;
        r.expert_rank_table = table.view;
        return r;
    }

    TwoPhaseLayoutRequest layout_of(size_t i) {
        auto r = request_of<TwoPhaseLayoutRequest>(i);
        Sender& sender = senders[i];
        sender.sorted = Tensor(DType::kInt32, {size.num_tokens * slots_per_token()});
        sender.counts = Tensor(DType::kInt32, {size.num_ranks, static_cast<size_t>(num_local)});
        r.active_mask = sender.mask.view;
        r.sorted_indices = sender.sorted.view;
        r.send_counts = sender.counts.view;
        return r;
    }

    void exchange(Path path) {
        const auto local = static_cast<size_t>(num_local);
        all_counts = Tensor(DType::kInt32, {size.num_senders, size.num_ranks, local});
        for (size_t i = 0; i < size.num_senders; ++i) {
            const std::vector<int32_t> counts = senders[i].counts.values<int32_t>();
            std::copy(counts.begin(), counts.end(), all_counts.as<int32_t>() + i * counts.size());
        }
        base = Tensor(DType::kInt64, {size.num_senders, size.num_ranks, local});
        recv_total = Tensor(DType::kInt64, {size.num_ranks});
        recv_counts = Tensor(DType::kInt64, {size.num_ranks, size.num_senders});
        group_list = Tensor(DType::kInt64, {size.num_ranks, local});
        expect_ok(offsets(true), path);
        size_t num_rows = 0;
        for (const int64_t rows : recv_total.values<int64_t>()) {
            num_rows += static_cast<size_t>(rows);
        }
        recv_x = Tensor(quant_mode == 1 ? DType::kInt8 : dtype, {num_rows, size.hidden});
        if (quant_mode == 1) recv_scale = Tensor(DType::kFp32, {num_rows});
    }

    TwoPhaseOffsetsRequest offsets(bool one_buffer) {
        TwoPhaseOffsetsRequest r;
        r.one_buffer = one_buffer;
        r.send_counts = all_counts.view;
        r.base = base.view;
        r.recv_total = recv_total.view;
        r.recv_counts = recv_counts.view;
        r.group_list = group_list.view;
        return r;
    }

    template <typename Request>
    Request blocks_of(size_t i) {
        auto r = request_of<Request>(i);
        const auto local = static_cast<size_t>(num_local);
        r.sorted_indices = senders[i].sorted.view;
        r.send_counts = senders[i].counts.view;
        r.base = make_tensor<const void>(base.as<int64_t>() + i * size.num_ranks * local,
                                         DType::kInt64,
                                         {size.num_ranks, local});
        return r;
    }

    TwoPhasePayloadRequest payload_of(size_t i) {
        auto r = blocks_of<TwoPhasePayloadRequest>(i);
        r.quant_mode = quant_mode;
        r.x = senders[i].x.view;
        r.scales = scales.view;
        r.recv_x = recv_x.view;
        r.recv_scale = recv_scale.view;
        return r;
    }

    TwoPhaseCombineRequest combine_of(size_t i, const Tensor& recv_y, const Tensor& y) {
        auto r = blocks_of<TwoPhaseCombineRequest>(i);
        r.expert_scales = senders[i].weights.view;
        r.recv_y = recv_y.view;
        r.y = y.view;
        return r;
    }

    // Both phases of every sender; the last sender writes first.
    void dispatch(Path path) {
        for (size_t i = 0; i < size.num_senders; ++i) expect_ok(layout_of(i), path);
        exchange(path);
        for (size_t i = size.num_senders; i-- > 0;) expect_ok(payload_of(i), path);
    }

    // One sent slot: where it goes and where it comes from.
    using Item = std::tuple<int32_t, int32_t, size_t, size_t>;  // rank, local id, sender, slot

    // The single pass: every sent slot of every sender in one sorted list.
    std::vector<Item> single_pass() {
        std::vector<Item> items;
        for (size_t i = 0; i < size.num_senders; ++i) {
            for (size_t slot = 0; slot < size.num_tokens * slots_per_token(); ++slot) {
                const int64_t expert = expert_of(i, slot);
                if (expert < 0) continue;
                const auto e = static_cast<size_t>(expert);
                const size_t num_experts = size.num_routed + size.num_shared;
                const size_t count = e % 2 == 0 ? std::min(size.num_replicas, size.num_ranks) : 1;
                const int32_t* pair =
                    table.as<int32_t>() +
                    ((kLayer * num_experts + e) * size.num_replicas + i % count) * 2;
                items.emplace_back(pair[0], pair[1], i, slot);
            }
        }
        std::sort(items.begin(), items.end());
        return items;
    }

    int64_t expert_of(size_t sender, size_t slot) {
        const size_t token = slot / slots_per_token();
        const size_t k = slot % slots_per_token();
        Tensor& mask = senders[sender].mask;
        if (mask.view.num_elements() > 0 && !mask.as<bool>()[token]) return -1;
        if (k >= size.top_k) return static_cast<int64_t>(size.num_routed + k - size.top_k);
        const int32_t id = senders[sender].ids.as<int32_t>()[token * size.top_k + k];
        return id >= 0 && id < static_cast<int32_t>(size.num_routed + size.num_shared) ? id : -1;
    }
};

inline std::string describe(const Cluster& c, Path path) {
    const Size& s = c.size;
    return "A=" + std::to_string(s.num_senders) + " N=" + std::to_string(s.num_tokens) +
           " K=" + std::to_string(s.top_k) + " S=" + std::to_string(s.num_shared) +
           " E=" + std::to_string(s.num_routed) + " F=" + std::to_string(s.num_ranks) +
           " block=" + std::to_string(c.block_size) + " quant=" + std::to_string(c.quant_mode) +
           (path.is_reference ? " reference" : " threads=" + std::to_string(path.num_threads));
}

// The receivers' rows against the single pass, row by row; every row of the segments is a result.
inline void expect_single_pass_order(Cluster& c) {
    const std::vector<Cluster::Item> items = c.single_pass();
    ASSERT_EQ(items.size(), c.recv_x.view.shape[0]);
    const size_t out_bytes = c.size.hidden * size_of(c.recv_x.view.dtype);
    const size_t x_bytes = c.size.hidden * size_of(c.dtype);
    std::vector<int8_t> q(c.size.hidden);
    for (size_t row = 0; row < items.size(); ++row) {
        const auto [rank, local, sender, slot] = items[row];
        const size_t token = slot / c.slots_per_token();
        const std::byte* want = c.senders[sender].x.bytes.data() + token * x_bytes;
        if (c.quant_mode == 1) {
            const auto expert = static_cast<size_t>(c.expert_of(sender, slot));
            const size_t num_experts = c.size.num_routed + c.size.num_shared;
            const float* smooth =
                c.scales.view.num_elements() == 0
                    ? nullptr
                    : c.scales.as<float>() +
                          (Cluster::kLayer * num_experts + expert) * c.size.hidden;
            const float scale =
                reference::quantise_row(c.dtype, want, smooth, c.size.hidden, q.data());
            ASSERT_EQ(c.recv_scale.as<float>()[row], scale) << "row " << row;
            want = reinterpret_cast<const std::byte*>(q.data());
        }
        ASSERT_EQ(std::memcmp(c.recv_x.bytes.data() + row * out_bytes, want, out_bytes), 0)
            << "row " << row << " of rank " << rank << ", local expert " << local << ", sender "
            << sender << ", slot " << slot;
    }
}

inline const Path kPaths[] = {kReference, {false, 1}, {false, 3}};

}  // namespace afd::ops::test
