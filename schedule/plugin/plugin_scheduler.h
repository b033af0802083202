// SPDX-License-Identifier: Apache-2.0
#pragma once

// PluginScheduler: a PassScheduler of a shared library. It checks every answer (an index out of
// range or a second one of a session is dropped and counted) and overrules a library that leaves
// the oldest descriptor waiting too long, so that no library can make a round wait for ever
// (promise 3).

#include <memory>
#include <string>
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

    // Overruled: the decision was taken from the library, and the oldest descriptor of each session
    // went instead.
    PassSchedulerErrors errors() const override { return errors_; }
    std::string_view name() const override { return name_; }

  private:
    PluginScheduler(const PluginLibrary& library, void* state, const AfdSchedulerConfig& config);
    uint32_t ask(uint64_t now_us, std::span<const ReadyDescriptor> ready);
    bool has_taken(const ReadyDescriptor& descriptor) const;
    void take_oldest_of_each_session(std::span<const ReadyDescriptor> ready);
    void take(const ReadyDescriptor& descriptor);

    const AfdPlugin& table_;
    const std::string name_;
    void* const state_;
    const uint64_t patience_us_;
    uint64_t decide_again_us_ = kNever;
    PassSchedulerErrors errors_;
    // Capacities: A * M, A * M, A.
    std::vector<AfdReadyDescriptor> shown_;
    std::vector<uint32_t> chosen_;
    std::vector<ReadyDescriptor> taken_;
    std::vector<uint8_t> is_taken_;  // [A]
};

}  // namespace afd::schedule
