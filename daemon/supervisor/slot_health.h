// SPDX-License-Identifier: Apache-2.0
#pragma once

// SlotHealth: what is known of why the worker of a slot cannot start or serve, and when to give up.
// Pure: it starts nothing, and tells nobody.

#include <cstdint>
#include <string>

namespace afd::daemon {

class SlotHealth {
  public:
    struct Settings {
        std::string name;  // "ffn worker 0".
        std::string host;  // Empty: this one.
        bool spawn = true;
        uint64_t start_attempts = 1;
        bool has_predecessors = false;
    };

    enum class Verdict {
        kTryAgain,
        kFailing,  // Tried again, and failure() says what it does.
        kGiveUp,   // Never ready, and too many failures or one that no further attempt can mend.
    };

    explicit SlotHealth(Settings settings);

    // No process can be started now; `why` goes behind the name. Returns whether that is news.
    bool on_hindered(const std::string& why);
    // One can. Returns whether that is news; failure() says so until the worker is ready.
    bool on_unhindered();
    void on_ready();
    // It has been ready for a while. Returns whether it had been failing.
    bool on_settled();
    // It was halted. What kept it from starting may be mended until it is resumed.
    void forget();
    // A process ended, or could not be started. `num_more`: failures beyond start_attempts that are
    // borne.
    Verdict on_failed(const std::string& why, bool is_permanent, uint64_t num_more = 0);
    // One that was ready, and for how short a time: of it on_failed() comes next.
    void on_short_life() { dies_when_ready_ = true; }

    // As WorkerSlot::failure() has it.
    std::string failure() const;
    bool is_hindered() const { return !hindrance_.empty(); }
    bool dies_when_ready() const { return dies_when_ready_; }
    // In a row before it was ready, or soon after.
    uint64_t num_failures() const { return num_failures_; }

  private:
    const Settings settings_;
    // A worker that was ready once is started for ever: giving up would end the requests of all
    // others, and what it lacks may come back. So is one of another host, whose word ends nothing
    // here.
    bool is_tried_for_ever_;
    uint64_t num_failures_ = 0;
    bool dies_when_ready_ = false;  // One of them was soon after.
    std::string hindrance_;         // What it waits for before it can start.
    bool was_hindered_ = false;     // Since it was ready last.
    std::string failure_;
};

}  // namespace afd::daemon
