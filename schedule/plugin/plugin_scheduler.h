// SPDX-License-Identifier: Apache-2.0
#pragma once

// PluginScheduler: a PassScheduler of a shared library. It checks every answer (an index out of
// range or a second one of a session is dropped and counted) and overrules a library that leaves
// the oldest descriptor waiting too long, so that no library can make a round wait for ever
// (promise 3).

#include <memory>
#include <vector>

#include "schedule/dispatch/pass_scheduler.h"
#include "schedule/plugin/plugin_library.h"

namespace afd::schedule {

class PluginScheduler final : public PassScheduler {
  public:
    // Errors: kFailedPrecondition: no scheduler in the library. kUnavailable: create returned null.
    static Result<std::unique_ptr<PluginScheduler>> create(const PluginLibrary& library,
                                                           const AfdSchedulerConfig& config);
    ~PluginScheduler() override;
    PluginScheduler(const PluginScheduler&) = delete;
    PluginScheduler& operator=(const PluginScheduler&) = delete;

    std::span<const ReadyDescriptor> decide(uint64_t now_us,
                                            std::span<const ReadyDescriptor> ready,
                                            bool running) override;
    uint64_t decide_again_us() const override { return decide_again_us_; }
    std::optional<uint32_t> waits_for_session() const override { return std::nullopt; }

    // Answers that named no descriptor or a session's second one.
    uint64_t num_bad_choices() const { return num_bad_choices_; }
    // Decisions that were taken from the library, because the oldest descriptor had waited too long
    // and was not chosen: the oldest one of each session went instead.
    uint64_t num_overruled() const { return num_overruled_; }

  private:
    PluginScheduler(const AfdPlugin& table, void* state, const AfdSchedulerConfig& config);
    uint32_t ask(uint64_t now_us, std::span<const ReadyDescriptor> ready);
    bool has_taken(const ReadyDescriptor& descriptor) const;
    void take_oldest_of_each_session(std::span<const ReadyDescriptor> ready);
    void take(const ReadyDescriptor& descriptor);

    const AfdPlugin& table_;
    void* const state_;
    const uint64_t patience_us_;
    uint64_t decide_again_us_ = kNever;
    uint64_t num_bad_choices_ = 0;
    uint64_t num_overruled_ = 0;
    // Capacities: A * M, A * M, A.
    std::vector<AfdReadyDescriptor> shown_;
    std::vector<uint32_t> chosen_;
    std::vector<ReadyDescriptor> taken_;
    std::vector<uint8_t> is_taken_;  // [A]
};

}  // namespace afd::schedule
