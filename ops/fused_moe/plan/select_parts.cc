// SPDX-License-Identifier: Apache-2.0
#include "ops/fused_moe/plan/select_parts.h"

#include <string>
#include <vector>

#include "proto/failure.h"

namespace afd::ops {
namespace {

// Last because it is slow, whatever the list says.
constexpr std::string_view kLastResort = "reference";

std::vector<const ExpertsEntry*> in_order(std::span<const ExpertsEntry> experts) {
    std::vector<const ExpertsEntry*> ordered;
    for (const bool is_last : {false, true}) {
        for (const ExpertsEntry& entry : experts) {
            if ((entry.capability->name == kLastResort) == is_last) ordered.push_back(&entry);
        }
    }
    return ordered;
}

// A pair that fails late is nearer to what was wanted than one with weights of another format.
bool is_nearer(const ExpertsEntry& entry, const FusedMoeConfig& config) {
    return check(*entry.capability, config).ok();
}

}  // namespace

Result<SelectedParts> select_parts(const FusedMoeConfig& config,
                                   std::span<const PrepareFinalizeEntry> prepare_finalize,
                                   std::span<const ExpertsEntry> experts) {
    AFD_TRY(check(config));
    std::string reasons;
    for (const PrepareFinalizeEntry& dispatch : prepare_finalize) {
        if (dispatch.make == nullptr) continue;
        std::string reason;
        bool is_near = false;
        for (const ExpertsEntry* entry : in_order(experts)) {
            const Result<> fits = check_composition(dispatch, *entry, config);
            if (fits.ok()) return SelectedParts{&dispatch, entry};
            if (reason.empty() || (!is_near && is_nearer(*entry, config))) {
                reason = fits.error().message;
                is_near = is_nearer(*entry, config);
            }
        }
        reasons += (reasons.empty() ? "" : "; ") + reason;
    }
    return failed_precondition("no two parts serve the configuration in one process: {}",
                               with(reasons.empty() ? "there are none" : reasons));
}

}  // namespace afd::ops
