// SPDX-License-Identifier: Apache-2.0
#pragma once

// Route: which endpoint a path is, by which methods, and whether it needs a key.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace afd::daemon {

enum class Endpoint {
    kPage,
    kModels,
    kModel,  // One, by its name.
    kCompletions,
    kChat,
    kResume,  // A stream of one of these, by its id.
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
        if (is_post) return method == "POST";
        return method == "GET" || (method == "HEAD" && has_head());
    }
    // For the Allow header.
    std::string_view methods() const {
        if (is_post) return "POST, OPTIONS";
        return has_head() ? "GET, HEAD, OPTIONS" : "GET, OPTIONS";
    }
    // A HEAD must not take a stream from whoever reads it.
    bool has_head() const { return endpoint != Endpoint::kResume; }
};

inline constexpr std::string_view kModelsPath = "/v1/models/";
inline constexpr std::string_view kResumePath = "/v1/resume/";

// Those that are one path each, with it.
std::span<const std::pair<std::string_view, Route>> fixed_routes();

// Nothing: there is no such path.
std::optional<Route> find_route(std::string_view path);

// What a path that there is not may have been meant for; empty: nobody knows.
std::string meant_path(std::string_view path);

}  // namespace afd::daemon
