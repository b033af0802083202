// SPDX-License-Identifier: Apache-2.0
#pragma once

// PassScheduler: which ready descriptors an FFN worker executes in its next pass. The seam for
// schedulers: FfnScheduler is the built-in one, PluginScheduler runs one of a shared library.
//
// Pure: no clock, no shared memory, no I/O; readiness and time are passed in (ready_scan.h supplies
// them). Data thread only; nothing allocates after construction.
//
// Whatever a scheduler decides, a pass takes at most one descriptor per session, and bits do not
// depend on it (promise 1): it chooses when rows are computed, never how.

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

namespace afd::schedule {

// A descriptor that is neither acknowledged nor taken.
struct ReadyDescriptor {
    uint32_t session = 0;
    uint32_t micro_batch = 0;
    int32_t layer_id = 0;
    int32_t round = 0;
    uint64_t order = 0;     // Ascending in the order of first readiness.
    uint64_t ready_us = 0;  // When it was first seen ready.
};

// What a scheduler of a user decided that was not done so.
struct PassSchedulerErrors {
    uint64_t num_bad_choices = 0;  // Named no descriptor, or a session's second one.
    uint64_t num_overruled = 0;    // Left the oldest descriptor too long.

    friend bool operator==(const PassSchedulerErrors&, const PassSchedulerErrors&) = default;
};

inline constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

class PassScheduler {
  public:
    virtual ~PassScheduler() = default;

    // Decides over everything that is ready now, ascending by `order`; times never decrease.
    // Returns the descriptors to execute, ascending by order of readiness; empty: wait. Valid
    // until the next call. With `running` false nothing is taken.
    virtual std::span<const ReadyDescriptor> decide(uint64_t now_us,
                                                    std::span<const ReadyDescriptor> ready,
                                                    bool running) = 0;

    // After an empty decision: when to decide again at the latest even if nothing new becomes
    // ready; kNever if nothing is ready.
    virtual uint64_t decide_again_us() const = 0;

    // After an empty decision: a session that is being waited for.
    virtual std::optional<uint32_t> waits_for_session() const = 0;

    // Since construction; a built-in scheduler makes none.
    virtual PassSchedulerErrors errors() const { return {}; }
    // For the log: "'NAME' (PATH)" of a library; empty: it is a built-in one.
    virtual std::string_view name() const { return {}; }
};

}  // namespace afd::schedule
