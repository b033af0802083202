// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where the time of a fused-MoE call goes, stage by stage. Off (a null profile), a stage costs one
// comparison. What a part does inside another stage (the activation inside the first product, the
// scattered store inside the second) counts there.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace afd::ops {

enum class MoeStage : uint8_t {
    kQuantise,    // Rows to int8, before they are sent or before the first GEMM.
    kDispatch,    // prepare_async: ids to local ids or places, rows on their way.
    kPermute,     // Rows to the order of the experts.
    kGemm1,       // gate and up.
    kActivation,  // silu(gate) · up.
    kGemm2,       // down.
    kUnpermute,   // Rows back to the order of the slots.
    kShared,      // The shared experts of this process, while the others' rows are away.
    kWait,        // For rows or results of other processes.
    kCombine,     // finalize: weights, sums, the layer's output.
};
inline constexpr size_t kNumMoeStages = 10;

std::string_view name_of(MoeStage stage);

struct StageProfile {
    std::array<uint64_t, kNumMoeStages> nanoseconds{};

    uint64_t& at(MoeStage stage) { return nanoseconds[static_cast<size_t>(stage)]; }
};

// Adds the time between its construction and its end to a stage.
class StageTimer {
  public:
    StageTimer(StageProfile* profile, MoeStage stage) : profile_(profile), stage_(stage) {
        if (profile_ != nullptr) start_ = Clock::now();
    }
    ~StageTimer() {
        if (profile_ == nullptr) return;
        const auto spent =
            std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_);
        profile_->at(stage_) += static_cast<uint64_t>(spent.count());
    }
    StageTimer(const StageTimer&) = delete;
    StageTimer& operator=(const StageTimer&) = delete;

  private:
    using Clock = std::chrono::steady_clock;

    StageProfile* profile_;
    MoeStage stage_;
    Clock::time_point start_{};
};

// The same without the time that was added to `inner` meanwhile.
class ExclusiveStageTimer {
  public:
    ExclusiveStageTimer(StageProfile* profile, MoeStage stage, MoeStage inner)
        : profile_(profile), stage_(stage), inner_(inner), timer_(profile, stage) {
        if (profile_ != nullptr) before_ = profile_->at(inner_);
    }
    ~ExclusiveStageTimer() {
        if (profile_ != nullptr) profile_->at(stage_) -= profile_->at(inner_) - before_;
    }
    ExclusiveStageTimer(const ExclusiveStageTimer&) = delete;
    ExclusiveStageTimer& operator=(const ExclusiveStageTimer&) = delete;

  private:
    StageProfile* profile_;
    MoeStage stage_;
    MoeStage inner_;
    uint64_t before_ = 0;
    StageTimer timer_;
};

}  // namespace afd::ops
