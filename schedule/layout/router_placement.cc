// SPDX-License-Identifier: Apache-2.0
#include "schedule/layout/router_placement.h"

namespace afd::schedule {

std::string_view name_of(RouterPlacement placement) {
    return placement == RouterPlacement::kFfn ? "ffn" : "attention";
}

}  // namespace afd::schedule
