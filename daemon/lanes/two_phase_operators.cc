// SPDX-License-Identifier: Apache-2.0
#include "daemon/lanes/two_phase_operators.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "model/decoder/smooth_rows.h"
#include "ops/fused_moe/sent_rows.h"
#include "proto/check.h"
#include "schedule/layout/row_checksum.h"

namespace afd::daemon {

using ops::DType;
using ops::make_tensor;

namespace {

// Rows that one thread encodes at a time: enough to pay for handing them out.
constexpr size_t kEncodeRows = 32;

// The rows of another writer, each with its seal.
class SealedRows final : public ops::TwoPhaseRowWriter {
  public:
    // `row_bytes`: without the seal. `rows` outlives the object.
    SealedRows(const ops::TwoPhaseRowWriter& rows, size_t row_bytes)
        : rows_(rows), row_bytes_(row_bytes) {}

    void write(size_t token, size_t expert, std::byte* row) const override {
        rows_.write(token, expert, row);
        schedule::seal_row({row, row_bytes_}, row + row_bytes_);
    }

  private:
    const ops::TwoPhaseRowWriter& rows_;
    const size_t row_bytes_;
};

size_t seal_elements(bool row_checksums) {
    return row_checksums ? schedule::kRowSealBytes / sizeof(ops::Bf16) : 0;
}

}  // namespace

TwoPhaseOperators::TwoPhaseOperators(const Settings& settings,
                                     const schedule::ExpertPlacement& placement,
                                     const model::SmoothScales* smooth,
                                     ops::Parallel& parallel)
    : settings_(settings),
      row_bytes_(ops::sent_row_bytes(settings.dispatch_dtype, settings.hidden)),
      tables_(placement, settings.session),
      num_local_experts_(placement.num_local_experts_max()),
      // Rows travel as so many bf16, whatever is in them: the operators copy bytes.
      row_elements_(row_bytes_ / sizeof(ops::Bf16) + seal_elements(settings.row_checksums)),
      smooth_(smooth),
      parallel_(parallel),
      sorted_indices_(size_t{settings.num_tokens_max} * (settings.top_k + settings.num_shared)),
      key_of_expert_(tables_.num_experts_max()),
      receivers_(settings.num_ranks),
      result_views_(settings.num_ranks) {
    // With smooth scales a row differs from expert to expert and is encoded on its way instead.
    const bool is_as_it_is =
        settings.dispatch_dtype == schedule::RowDtype::kBf16 && !settings.row_checksums;
    if (!is_as_it_is && smooth == nullptr) {
        encoded_.resize(settings.num_tokens_max * row_elements_);
    }
    const size_t num_keys = size_t{settings.num_ranks} * num_local_experts_;
    for (std::vector<int32_t>* counts : {&send_counts_, &block_counts_}) counts->resize(num_keys);
    for (std::vector<int64_t>* rows : {&grants_, &sent_, &block_base_, &block_done_}) {
        rows->resize(num_keys);
    }
    // The largest call of each operator: a block of as many tokens as can come, in the widest
    // layer.
    set_input({.layer_id = tables_.widest_layer(),
               .num_tokens = settings.num_tokens_max,
               .top_k = static_cast<uint32_t>(settings.top_k),
               .num_shared = static_cast<uint32_t>(settings.num_shared)});
    workspace_.reserve(
        std::max({ops::two_phase_layout_workspace_bytes(layout_request(), parallel.num_threads()),
                  ops::two_phase_payload_workspace_bytes(payload_request(0)),
                  ops::two_phase_combine_workspace_bytes(combine_request(0))}));
}

void TwoPhaseOperators::set_input(const ops::MoeInput& input) {
    input_ = input;
    routing_ = {};
    routing_.num_ranks = settings_.num_ranks;
    routing_.num_local_experts = num_local_experts_;
    routing_.shared_expert_num = input.num_shared;
    routing_.session_id = settings_.session;
    routing_.block_size = settings_.block_tokens;
    routing_.expert_ids =
        make_tensor<const void>(input.topk_ids, DType::kInt32, {input.num_tokens, input.top_k});
    routing_.expert_rank_table = tables_.of(input.layer_id);
}

ops::TwoPhaseLayoutRequest TwoPhaseOperators::layout_request() {
    ops::TwoPhaseLayoutRequest request;
    static_cast<ops::TwoPhaseRouting&>(request) = routing_;
    request.sorted_indices = make_tensor<void>(
        sorted_indices_.data(), DType::kInt32, {size_t{input_.num_tokens} * input_.num_slots()});
    request.send_counts = by_key<void>(send_counts_.data(), DType::kInt32);
    return request;
}

// What sending and combining a block have in common.
template <typename Request>
Request TwoPhaseOperators::block_request(uint32_t block) const {
    Request request;
    static_cast<ops::TwoPhaseRouting&>(request) = routing_;
    request.first_block = block;
    request.num_blocks = 1;
    request.sorted_indices = make_tensor<const void>(
        sorted_indices_.data(), DType::kInt32, {size_t{input_.num_tokens} * input_.num_slots()});
    return request;
}

ops::TwoPhasePayloadRequest TwoPhaseOperators::payload_request(uint32_t block) {
    auto request = block_request<ops::TwoPhasePayloadRequest>(block);
    request.send_counts = by_key<const void>(send_counts_.data(), DType::kInt32);
    request.base = by_key<const void>(grants_.data(), DType::kInt64);
    request.done = by_key<void>(sent_.data(), DType::kInt64);
    request.receivers = receivers_;
    return request;
}

// The results of a block lie by themselves, so its counts are those of the call.
ops::TwoPhaseCombineRequest TwoPhaseOperators::combine_request(uint32_t block) {
    auto request = block_request<ops::TwoPhaseCombineRequest>(block);
    request.send_counts = by_key<const void>(block_counts_.data(), DType::kInt32);
    request.base = by_key<const void>(block_base_.data(), DType::kInt64);
    request.done = by_key<void>(block_done_.data(), DType::kInt64);
    request.senders = result_views_;
    return request;
}

void TwoPhaseOperators::begin(const ops::MoeInput& input) {
    set_input(input);
    std::fill(sent_.begin(), sent_.end(), 0);
    for (uint32_t rank = 0; rank < settings_.num_ranks; ++rank) set_receiver(rank, nullptr, 0);
    const auto laid_out = ops::two_phase_layout(layout_request(), workspace_.bytes(), parallel_);
    AFD_ASSERT(laid_out.ok(), "%s", laid_out.error().message.c_str());
}

void TwoPhaseOperators::count_block(uint32_t block) {
    ops::two_phase_block_counts(
        routing_, sorted_indices_.data(), block, key_of_expert_, block_counts_);
}

void TwoPhaseOperators::set_receiver(uint32_t rank, std::byte* rows, size_t num_rows) {
    receivers_[rank].recv_x = make_tensor<void>(rows, DType::kBf16, {num_rows, row_elements_});
}

// The batch's rows as they are sent, those of the block just made; the operators copy them without
// a look into them.
const ops::Bf16* TwoPhaseOperators::encoded_rows(uint32_t block) {
    if (encoded_.empty()) return input_.x.data;
    const size_t first = size_t{block} * settings_.block_tokens;
    const size_t count = std::min<size_t>(settings_.block_tokens, input_.num_tokens - first);
    parallel_.run((count + kEncodeRows - 1) / kEncodeRows, [&](size_t task, unsigned) {
        const size_t last = first + std::min(count, (task + 1) * kEncodeRows);
        for (size_t token = first + task * kEncodeRows; token < last; ++token) encode_row(token);
    });
    return encoded_.data();
}

void TwoPhaseOperators::encode_row(size_t token) {
    auto* const row = reinterpret_cast<std::byte*>(&encoded_[token * row_elements_]);
    if (settings_.dispatch_dtype == schedule::RowDtype::kBf16) {
        std::memcpy(row, input_.x.row(token), row_bytes_);
    } else {
        ops::encode_sent_row(settings_.dispatch_dtype, input_.x.row(token), settings_.hidden, row);
    }
    if (settings_.row_checksums) schedule::seal_row({row, row_bytes_}, row + row_bytes_);
}

void TwoPhaseOperators::send_block(uint32_t block) {
    ops::TwoPhasePayloadRequest request = payload_request(block);
    request.x = make_tensor<const void>(
        encoded_rows(block), DType::kBf16, {input_.num_tokens, row_elements_});
    std::optional<model::SmoothRows> smooth_rows;
    std::optional<SealedRows> sealed_rows;
    if (smooth_ != nullptr) {
        request.row_writer = &smooth_rows.emplace(input_.x, input_.layer_id, *smooth_);
        if (settings_.row_checksums) {
            request.row_writer = &sealed_rows.emplace(*smooth_rows, row_bytes_);
        }
    }
    const auto sent = ops::two_phase_payload(request, workspace_.bytes(), parallel_);
    AFD_ASSERT(sent.ok(), "%s", sent.error().message.c_str());
}

void TwoPhaseOperators::set_results(uint32_t rank, const std::byte* rows) {
    int64_t num_rows = 0;
    for (size_t e = 0; e < num_local_experts_; ++e) {
        const size_t key = size_t{rank} * num_local_experts_ + e;
        block_base_[key] = num_rows;
        num_rows += block_counts_[key];
    }
    result_views_[rank] =
        make_tensor<const void>(num_rows == 0 ? nullptr : rows,
                                DType::kBf16,
                                {static_cast<size_t>(num_rows), settings_.hidden});
}

void TwoPhaseOperators::combine_block(uint32_t block,
                                      const ops::ExpertsOutput& shared,
                                      ops::Rows<ops::Bf16> out) {
    std::fill(block_done_.begin(), block_done_.end(), 0);
    ops::TwoPhaseCombineRequest request = combine_request(block);
    request.expert_scales = make_tensor<const void>(
        input_.topk_weights, DType::kFp32, {input_.num_tokens, input_.top_k});
    if (shared.num_shared > 0) {
        request.shared_rows =
            make_tensor<const void>(shared.shared.data,
                                    DType::kBf16,
                                    {input_.num_tokens, shared.num_shared, settings_.hidden});
    }
    request.y = make_tensor<void>(out.data, DType::kBf16, {input_.num_tokens, settings_.hidden});
    const auto combined = ops::two_phase_combine(request, workspace_.bytes(), parallel_);
    AFD_ASSERT(combined.ok(), "%s", combined.error().message.c_str());
}

}  // namespace afd::daemon
