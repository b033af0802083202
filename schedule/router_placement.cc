// SPDX-License-Identifier: Apache-2.0
#include "schedule/router_placement.h"

#include <string>

namespace afd::schedule {

std::string_view router_placement_name(RouterPlacement placement) {
    return placement == RouterPlacement::kFfn ? "ffn" : "attention";
}

Result<RouterPlacement> parse_router_placement(std::string_view name) {
    for (const auto placement : {RouterPlacement::kAttention, RouterPlacement::kFfn}) {
        if (name == router_placement_name(placement)) return placement;
    }
    return Error{Code::kInvalidArgument,
                 "router is '" + std::string(name) + "'; allowed are attention and ffn"};
}

}  // namespace afd::schedule
