// SPDX-License-Identifier: Apache-2.0
#pragma once

// LostRanks: the FFN ranks that have no process just now, as afdd told a session, and whether the
// session can do without them (R12): each expert has a replica on another rank.
//
// What is not said counts as there: a session that hears late sends rows to a dead rank, and has
// the round voided when it hears. One data thread. Nothing allocates after construction.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "schedule/dispatch/expert_placement.h"

namespace afd::schedule {

class LostRanks {
  public:
    // `may_choose`: the session decides which replica gets a row; with router = ffn it does not.
    // REQUIRES: the placement outlives this.
    LostRanks(const ExpertPlacement& placement, bool may_choose)
        : placement_(placement),
          may_choose_(may_choose),
          is_lost_(placement.num_ranks(), false),
          num_losses_(placement.num_ranks(), 0) {}

    // A rank that the instance does not have is ignored.
    void set(uint32_t rank, bool is_lost) {
        if (rank >= is_lost_.size()) return;
        is_lost_[rank] = is_lost;
        if (is_lost) ++num_losses_[rank];
        is_any_ = std::find(is_lost_.begin(), is_lost_.end(), true) != is_lost_.end();
        can_do_without_ = may_choose_ && is_any_ && placement_.is_whole_without(is_lost_);
    }

    uint32_t num_ranks() const { return static_cast<uint32_t>(is_lost_.size()); }
    bool is_lost(uint32_t rank) const { return is_lost_[rank]; }
    // How often it was lost; each time a session may ask anew.
    uint64_t num_losses(uint32_t rank) const { return num_losses_[rank]; }
    bool is_any() const { return is_any_; }
    // Some are lost, and all experts are on others, too.
    bool can_do_without() const { return can_do_without_; }

  private:
    const ExpertPlacement& placement_;
    const bool may_choose_;
    std::vector<bool> is_lost_;
    std::vector<uint64_t> num_losses_;
    bool is_any_ = false;
    bool can_do_without_ = false;
};

}  // namespace afd::schedule
