// SPDX-License-Identifier: Apache-2.0
#pragma once

// Doorbells: an eventfd for each worker of an instance, which its peers ring and it alone sleeps
// at. They outlive the workers' processes.

#include <cstdint>
#include <vector>

#include "daemon/loop/unique_fd.h"
#include "proto/control.pb.h"
#include "proto/status.h"

namespace afd::daemon {

class Doorbells {
  public:
    // None.
    Doorbells() = default;
    // Errors: kResourceExhausted: descriptors.
    static Result<Doorbells> make(size_t num_attention, size_t num_ffn);

    // What a worker is handed: its own, then those of the other role in the order of their indices.
    std::vector<int> of(control::Role role, uint32_t index) const;
    void ring_all() const;

  private:
    std::vector<UniqueFd> attention_;
    std::vector<UniqueFd> ffn_;
};

}  // namespace afd::daemon
