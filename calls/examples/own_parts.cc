// SPDX-License-Identifier: Apache-2.0
//
// Parts of the fused-MoE framework that live in their user's program: an Experts part whose expert
// e multiplies a row by e + 1, and a PrepareFinalize that counts what another one dispatches. The
// framework composes them, checks their records, and chooses among them and its own.
#include <chrono>
#include <cstdio>
#include <memory>
#include <vector>

#include "ops/fused_moe/fused_moe.h"
#include "ops/fused_moe/plan/select_parts.h"

namespace ops = afd::ops;

namespace {

class Multiply final : public ops::Experts {
  public:
    // What the record does not name is refused for the part.
    static constexpr ops::ExpertsCapability kCapability{
        .name = "multiply",
        .activation_formats = ops::bit(ops::ActivationFormat::kStandard),
        .weight_and_reduce = ops::WeightAndReduceKind::kDelegate,
    };
    const ops::ExpertsCapability& capability() const override { return kCapability; }

    // No scratch; a row for each slot.
    ops::WorkspaceShapes workspace_shapes(const ops::ActivationSizes& sizes) const override {
        return {.output_rows = sizes.num_rows * sizes.num_slots};
    }

    afd::Result<> apply(const ops::Activations& activations,
                        ops::Rows<ops::Bf16> output,
                        const ops::ExpertsResources&) override {
        const auto& standard = std::get<ops::StandardActivations>(activations);
        for (size_t slot = 0; slot < standard.x.num_rows() * standard.num_slots; ++slot) {
            if (ops::state_of(standard.local_ids[slot]) != ops::AssignmentState::kValid) continue;
            const auto factor = static_cast<float>(standard.local_ids[slot]) + 1;
            const ops::Bf16* x = standard.x.bf16.row(slot / standard.num_slots);
            for (size_t column = 0; column < output.num_cols; ++column) {
                output.row(slot)[column] = ops::from_float(factor * ops::to_float(x[column]));
            }
        }
        return {};
    }
};

// Everything is the inner part's business, except that ids come as int64, as the record asks.
class Counting final : public ops::PrepareFinalize {
  public:
    Counting(const ops::FusedMoeConfig& config, ops::Parallel& parallel)
        : inner_(ops::find_prepare_finalize("local").value()->make(config, parallel)),
          capability_(inner_->capability()) {
        capability_.name = "counting";
        capability_.topk_indices_dtype = ops::IdDtype::kInt64;
    }
    const ops::PrepareFinalizeCapability& capability() const override { return capability_; }
    afd::Result<ops::Ticket> prepare_async(const ops::MoeInput& input, uint32_t slot) override {
        for (size_t i = 0; i < size_t{input.num_tokens} * input.top_k; ++i) {
            num_sent_ += input.topk_ids_int64[i] >= 0 ? 1 : 0;
        }
        return inner_->prepare_async(input, slot);
    }
    bool slot_free(uint32_t slot) override { return inner_->slot_free(slot); }
    bool ready(const ops::Ticket& ticket) const override { return inner_->ready(ticket); }
    ops::Activations activations(const ops::Ticket& ticket) const override {
        return inner_->activations(ticket);
    }
    ops::ActivationMetadata metadata(const ops::Ticket& ticket) const override {
        return inner_->metadata(ticket);
    }
    afd::Result<> finalize_async(const ops::Ticket& ticket,
                                 const ops::ExpertsOutput& output) override {
        return inner_->finalize_async(ticket, output);
    }
    bool finalized(const ops::Ticket& ticket) const override { return inner_->finalized(ticket); }
    afd::Result<> finalize(ops::Ticket&& ticket,
                           const ops::TopKWeightAndReduce& reduce,
                           ops::Rows<ops::Bf16> out,
                           ops::Parallel& parallel) override {
        return inner_->finalize(std::move(ticket), reduce, out, parallel);
    }
    void cancel(uint32_t slot, uint64_t id) override { inner_->cancel(slot, id); }

    size_t num_sent() const { return num_sent_; }

  private:
    std::unique_ptr<ops::PrepareFinalize> inner_;
    ops::PrepareFinalizeCapability capability_;
    size_t num_sent_ = 0;
};

constexpr ops::FusedMoeConfig kConfig{
    .hidden = 4, .num_experts = 3, .top_k = 2, .max_num_tokens = 8};

int fail(const afd::Error& error) {
    std::fprintf(stderr, "%s\n", error.message.c_str());
    return 1;
}

}  // namespace

int main() {
    // Own parts stand before the framework's; the first pair that serves the configuration is it.
    std::vector<ops::ExpertsEntry> experts = {
        {&Multiply::kCapability, [](const ops::ExpertsSetup&) -> std::unique_ptr<ops::Experts> {
             return std::make_unique<Multiply>();
         }}};
    experts.insert(experts.end(), ops::experts_parts().begin(), ops::experts_parts().end());
    const auto selected = ops::select_parts(kConfig, ops::prepare_finalize_parts(), experts);
    if (!selected.ok()) return fail(selected.error());
    std::printf("selected %s and %s\n",
                selected.value().prepare_finalize->capability->name.data(),
                selected.value().experts->capability->name.data());

    ops::SerialParallel serial;
    Counting dispatch(kConfig, serial);
    const auto multiply = selected.value().experts->make({});
    auto moe = ops::FusedMoe::compose(dispatch, *multiply, kConfig, serial);
    if (!moe.ok()) return fail(moe.error());
    std::vector<ops::Bf16> x(8, ops::from_float(1));
    const int32_t ids[] = {0, 2, 1, -1};
    const float weights[] = {0.5, 0.5, 2, 1};
    std::vector<ops::Bf16> out(8);
    const ops::MoeInput input{.x = ops::make_rows<const ops::Bf16>(x.data(), 2, 4),
                              .num_tokens = 2,
                              .top_k = 2,
                              .topk_ids = ids,
                              .topk_weights = weights};
    const auto done = moe.value().apply(input, ops::make_rows(out.data(), 2, 4));
    if (!done.ok()) return fail(done.error());
    std::printf("sent %zu rows; out", dispatch.num_sent());
    for (const ops::Bf16 value : out) std::printf(" %g", static_cast<double>(ops::to_float(value)));
    std::printf("\n");

    ops::FusedMoeConfig chunks = kConfig;
    chunks.max_chunk_tokens = 2;
    const auto refused = ops::FusedMoe::compose(dispatch, *multiply, chunks, serial);
    std::printf("refused: %s\n", refused.ok() ? "" : refused.error().message.c_str());
    return 0;
}
