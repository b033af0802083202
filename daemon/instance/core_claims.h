// SPDX-License-Identifier: Apache-2.0
#pragma once

// CoreClaims: which cores an instance has pinned its threads to, so that the next one of this user
// on this machine takes others. A claim is a lock on a byte of a file in the runtime directory, one
// for each core, which several instances may have; the kernel ends it with the process, however
// that ends. A claim keeps nobody from a core: it only says which are taken last.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daemon/config/cpu_plan.h"
#include "daemon/loop/unique_fd.h"
#include "proto/status.h"

namespace afd::daemon {

class CoreClaims {
  public:
    using PlanWith = std::function<Result<CpuPlan>(const std::vector<uint32_t>& cores)>;

    // `topology`: where the kernel tells of each core, which others are threads of the same.
    explicit CoreClaims(const std::string& directory,
                        std::string topology = "/sys/devices/system/cpu");

    // The plan of `plan_with` for the allowed cores, and claims its own, beside those that are
    // claimed already. One that leaves some over is made again with the best of them in front.
    // Errors: its own.
    Result<CpuPlan> plan(const std::vector<uint32_t>& allowed, const PlanWith& plan_with) const;

    // The cores of this plan alone are claimed from now on: no thread is on others any more.
    void hold(const CpuPlan& plan) const;

    // `allowed`, with the best `num` of them in front, either part in ascending order: cores that
    // no other instance has claimed; of these, one thread of each physical core before the second.
    std::vector<uint32_t> by_preference(const std::vector<uint32_t>& allowed, size_t num) const;

  private:
    bool is_claimed_by_other(uint32_t core) const;
    void claim(const std::vector<uint32_t>& cores) const;
    // `num` cores from `first` on; 0: all from there on.
    void release(uint32_t first, uint32_t num) const;
    size_t place_among_siblings(uint32_t core) const;

    const UniqueFd file_;  // Invalid: nobody's claims are known.
    const std::string topology_;
};

}  // namespace afd::daemon
