// SPDX-License-Identifier: Apache-2.0
#include "schedule/plugin/plugin_scheduler.h"

#include <algorithm>

#include "proto/check.h"
#include "proto/failure.h"

namespace afd::schedule {
namespace {

// Far above what a policy gains by waiting, far below the deadline of a round.
constexpr uint64_t kPatienceDeadlines = 64;
constexpr uint64_t kPatienceUs = 100'000;

}  // namespace

Result<std::unique_ptr<PluginScheduler>> PluginScheduler::create(const PluginLibrary& library,
                                                                 const AfdSchedulerConfig& config) {
    AFD_TRY(library.require_scheduler());
    void* state = library.table().scheduler_create(&config);
    if (state == nullptr) {
        return unavailable("the plugin '{}' cannot make a scheduler for {} sessions",
                           with(library.path(), config.num_sessions));
    }
    return std::unique_ptr<PluginScheduler>(new PluginScheduler(library, state, config));
}

PluginScheduler::PluginScheduler(const PluginLibrary& library,
                                 void* state,
                                 const AfdSchedulerConfig& config)
    : table_(library.table()),
      name_(fmt::format("'{}' ({})", table_.name, library.path())),
      state_(state),
      patience_us_(kPatienceDeadlines * config.deadline_us + kPatienceUs) {
    const size_t num_lanes = size_t{config.num_sessions} * config.num_micro_batches;
    shown_.resize(num_lanes);
    chosen_.resize(num_lanes);
    taken_.reserve(config.num_sessions);
    is_taken_.resize(config.num_sessions);
}

PluginScheduler::~PluginScheduler() {
    table_.scheduler_destroy(state_);
}

std::span<const ReadyDescriptor> PluginScheduler::decide(uint64_t now_us,
                                                         std::span<const ReadyDescriptor> ready,
                                                         bool running) {
    taken_.clear();
    decide_again_us_ = kNever;
    if (!running || ready.empty()) return taken_;
    std::fill(is_taken_.begin(), is_taken_.end(), uint8_t{0});
    const uint32_t num_chosen = ask(now_us, ready);
    for (uint32_t i = 0; i < num_chosen; ++i) {
        // A choice out of range, or a second one of a session, costs itself only; ReadyScan::take()
        // would assert on it.
        const bool is_good = chosen_[i] < ready.size() && !is_taken_[ready[chosen_[i]].session];
        is_good ? take(ready[chosen_[i]]) : static_cast<void>(++errors_.num_bad_choices);
    }
    // Every wait ends (R7). A library that takes newer descriptors of a session again and again
    // leaves the oldest one as surely as one that takes nothing: its whole choice is dropped.
    const uint64_t oldest_us = ready.front().ready_us;
    if (now_us - oldest_us > patience_us_ && !has_taken(ready.front())) {
        ++errors_.num_overruled;
        take_oldest_of_each_session(ready);
    }
    if (taken_.empty()) {
        decide_again_us_ = std::min(decide_again_us_, oldest_us + patience_us_ + 1);
    }
    std::sort(taken_.begin(), taken_.end(), [](const auto& a, const auto& b) {
        return a.order < b.order;
    });
    return taken_;
}

// Shows the library a copy, so that what it writes there changes nothing here.
uint32_t PluginScheduler::ask(uint64_t now_us, std::span<const ReadyDescriptor> ready) {
    AFD_ASSERT(ready.size() <= shown_.size(), "%zu descriptors", ready.size());
    for (size_t i = 0; i < ready.size(); ++i) {
        shown_[i] = {
            ready[i].session, ready[i].micro_batch, ready[i].layer_id, 0, ready[i].ready_us};
    }
    const auto num_ready = static_cast<uint32_t>(ready.size());
    uint64_t again_us = kNever;
    const uint32_t num_chosen = table_.scheduler_decide(
        state_, now_us, shown_.data(), num_ready, chosen_.data(), &again_us);
    // A time that has passed would make the loop ask again without a pause.
    decide_again_us_ = std::max(again_us, now_us + 1);
    return std::min(num_chosen, num_ready);
}

bool PluginScheduler::has_taken(const ReadyDescriptor& descriptor) const {
    return std::ranges::any_of(
        taken_, [&](const ReadyDescriptor& taken) { return taken.order == descriptor.order; });
}

void PluginScheduler::take_oldest_of_each_session(std::span<const ReadyDescriptor> ready) {
    taken_.clear();
    std::fill(is_taken_.begin(), is_taken_.end(), uint8_t{0});
    for (const ReadyDescriptor& descriptor : ready) {
        if (!is_taken_[descriptor.session]) take(descriptor);
    }
}

void PluginScheduler::take(const ReadyDescriptor& descriptor) {
    is_taken_[descriptor.session] = 1;
    taken_.push_back(descriptor);
}

}  // namespace afd::schedule
