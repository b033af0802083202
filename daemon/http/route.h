// SPDX-License-Identifier: Apache-2.0
#pragma once

// Route: which endpoint a path is, by which methods, and whether it needs a key.

#include <optional>
#include <string_view>

namespace afd::daemon {

enum class Endpoint {
    kPage,
    kModels,
    kModel,  // One, by its name.
    kCompletions,
    kChat,
    kTokenize,
    kDetokenize,
    kLive,
    kReady,  // And /health.
    kMetrics,
};

struct Route {
    Endpoint endpoint = Endpoint::kPage;
    bool is_post = false;  // Else GET and HEAD.
    bool needs_key = true;
    std::string_view handler = {};  // The path, for metrics.

    bool takes(std::string_view method) const {
        return is_post ? method == "POST" : method == "GET" || method == "HEAD";
    }
    // For the Allow header.
    std::string_view methods() const { return is_post ? "POST, OPTIONS" : "GET, HEAD, OPTIONS"; }
};

inline constexpr std::string_view kModelsPath = "/v1/models/";

// Nothing: there is no such path.
std::optional<Route> find_route(std::string_view path);

}  // namespace afd::daemon
