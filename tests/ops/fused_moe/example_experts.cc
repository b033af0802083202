// SPDX-License-Identifier: Apache-2.0

// An Experts part of one's own, complete: docs/fused_moe.md names it, and
// fused_moe_matrix_test.cc runs it through the whole matrix.
//
// It computes a token at a time and reduces it at once, so finalize has nothing left to do.

#include "tests/ops/fused_moe/example_experts.h"

#include "ops/reference/expert_ffn.h"

namespace afd::ops::test {
namespace {

class ExampleExperts final : public Experts {
  public:
    explicit ExampleExperts(const ExpertsSetup& setup) : setup_(setup) {}

    // The record: what the part can do. Everything that it does not name is refused for it.
    static constexpr ExpertsCapability kCapability{
        .name = "example",
        .activation_formats = bit(ActivationFormat::kStandard),
        .weight_and_reduce = WeightAndReduceKind::kNoOp,
        .supports_chunking = true,
    };
    const ExpertsCapability& capability() const override { return kCapability; }

    // No scratch; one row of output for each token, since they come reduced.
    WorkspaceShapes workspace_shapes(const ActivationSizes& sizes) const override {
        return {.output_rows = sizes.num_rows};
    }

    Result<> apply(const Activations& activations,
                   Rows<Bf16> output,
                   const ExpertsResources&) override {
        const auto& standard = std::get<StandardActivations>(activations);
        for (size_t token = 0; token < standard.x.num_rows(); ++token) {
            std::vector<float> sums(setup_.hidden, 0.0f);
            for (size_t slot = 0; slot < standard.num_slots; ++slot) {
                const size_t i = token * standard.num_slots + slot;
                if (state_of(standard.local_ids[i]) != AssignmentState::kValid) continue;
                add_expert(standard, token, standard.local_ids[i], standard.weights[i], sums);
            }
            for (size_t c = 0; c < sums.size(); ++c) output.row(token)[c] = from_float(sums[c]);
        }
        return {};
    }

  private:
    void add_expert(const StandardActivations& standard,
                    size_t token,
                    LocalExpert expert,
                    float weight,
                    std::vector<float>& sums) const {
        const size_t key =
            standard.layer_id * setup_.experts_per_layer + static_cast<size_t>(expert);
        const std::vector<Bf16> row = reference::narrow(
            reference::expert_ffn(reference::widen(standard.x.bf16.slice(token, 1)),
                                  setup_.weights[key],
                                  reference::Rounding::kBf16));
        for (size_t c = 0; c < sums.size(); ++c) sums[c] = sums[c] + to_float(row[c]) * weight;
    }

    ExpertsSetup setup_;
};

std::unique_ptr<Experts> make_example(const ExpertsSetup& setup) {
    return std::make_unique<ExampleExperts>(setup);
}

}  // namespace

// The line that experts_parts() in ops/fused_moe/plan/registry.cc would have.
const ExpertsEntry kExampleExperts = {&ExampleExperts::kCapability, make_example};

}  // namespace afd::ops::test
