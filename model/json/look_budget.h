// SPDX-License-Identifier: Apache-2.0
#pragma once

// LookBudget: how much of a client's schemas may still be looked at. Choices that lead to choices,
// and members to members, multiply: one small request could keep a process busy for years.

#include <cstddef>

namespace afd::model {

class LookBudget {
  public:
    explicit LookBudget(size_t num_parts) : num_left_(num_parts) {}

    // Takes as many. False: they are beyond it, and so is all that follows.
    bool take(size_t num_parts) {
        is_spent_ = is_spent_ || num_parts > num_left_;
        if (!is_spent_) num_left_ -= num_parts;
        return !is_spent_;
    }
    // Whether something was beyond it.
    bool is_spent() const { return is_spent_; }

  private:
    size_t num_left_;
    bool is_spent_ = false;
};

}  // namespace afd::model
