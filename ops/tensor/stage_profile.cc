// SPDX-License-Identifier: Apache-2.0

#include "ops/tensor/stage_profile.h"

namespace afd::ops {

std::string_view name_of(MoeStage stage) {
    switch (stage) {
        case MoeStage::kQuantise:
            return "quantise";
        case MoeStage::kDispatch:
            return "dispatch";
        case MoeStage::kPermute:
            return "permute";
        case MoeStage::kGemm1:
            return "gemm_1";
        case MoeStage::kActivation:
            return "activation";
        case MoeStage::kGemm2:
            return "gemm_2";
        case MoeStage::kUnpermute:
            return "unpermute";
        case MoeStage::kShared:
            return "shared";
        case MoeStage::kWait:
            return "wait";
        case MoeStage::kCombine:
            return "combine";
    }
    return "unknown";
}

}  // namespace afd::ops
