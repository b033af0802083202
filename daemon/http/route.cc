// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/route.h"

#include <fmt/core.h>

#include <array>
#include <utility>
#include <vector>

#include "proto/did_you_mean.h"

namespace afd::daemon {

namespace {

// Probes and scrapers have no keys; nothing that they see is a client's.
constexpr std::array<std::pair<std::string_view, Route>, 10> kRoutes{{
    {"/", {Endpoint::kPage, false, false}},
    {"/v1/models", {Endpoint::kModels, false, true}},
    {"/v1/completions", {Endpoint::kCompletions, true, true}},
    {"/v1/chat/completions", {Endpoint::kChat, true, true}},
    {"/tokenize", {Endpoint::kTokenize, true, true}},
    {"/detokenize", {Endpoint::kDetokenize, true, true}},
    {"/live", {Endpoint::kLive, false, false}},
    {"/ready", {Endpoint::kReady, false, false}},
    {"/health", {Endpoint::kReady, false, false}},
    {"/metrics", {Endpoint::kMetrics, false, false}},
}};

}  // namespace

std::span<const std::pair<std::string_view, Route>> fixed_routes() {
    return kRoutes;
}

std::optional<Route> find_route(std::string_view path) {
    for (const auto& [name, route] : kRoutes) {
        if (name != path) continue;
        Route found = route;
        found.handler = name;
        return found;
    }
    if (path.starts_with(kModelsPath) && path.size() > kModelsPath.size()) {
        return Route{Endpoint::kModel, false, true, "/v1/models/{model}"};
    }
    if (path.starts_with(kResumePath) && path.size() > kResumePath.size()) {
        return Route{Endpoint::kResume, false, true, "/v1/resume/{id}"};
    }
    return std::nullopt;
}

std::string meant_path(std::string_view path) {
    // A base URL with the version too few, or twice.
    for (const std::string& meant :
         {fmt::format("/v1{}", path), std::string(path.substr(path.starts_with("/v1/") ? 3 : 0))}) {
        if (find_route(meant)) return meant;
    }
    std::vector<std::string> known;
    for (const auto& [name, route] : kRoutes) known.emplace_back(name);
    return nearest_word(path, known);
}

}  // namespace afd::daemon
