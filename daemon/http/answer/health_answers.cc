// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/answer/health_answers.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "proto/state_names.h"

namespace afd::daemon {

namespace {

constexpr const char* kOk = R"({"status":"ok"})";

// The fields of `json` and the error object that clients of the API know.
HttpResponse not_ready(nlohmann::json json, const std::string& code, const std::string& message) {
    const ApiError error{.status = 503, .code = code, .message = message, .retry_after_s = 1};
    HttpResponse response = HttpResponse::of(error);
    json.update(nlohmann::json::parse(response.body));
    response.body = json.dump();
    return response;
}

double progress_of(const client::Status& status) {
    const auto num_ready = std::count_if(
        status.workers().begin(), status.workers().end(), [](const client::Worker& worker) {
            return worker.state() == kWorkerReady;
        });
    return static_cast<double>(num_ready) / std::max(1, status.workers_size());
}

}  // namespace

HttpResponse answer_live(const client::Status& status) {
    if (status.state() != kInstanceFailed) return HttpResponse::json(kOk);
    return not_ready({{"status", status.state()}}, "worker_lost", status.reason());
}

HttpResponse answer_ready(const client::Status& status) {
    const std::string& state = status.state();
    if (state == kInstanceReady || state == kInstanceDegraded) {
        if (status.waits().empty()) return HttpResponse::json(kOk);
        const std::vector<std::string> waits(status.waits().begin(), status.waits().end());
        return HttpResponse::json(nlohmann::json({{"status", "ok"}, {"waits", waits}}).dump());
    }
    if (state == kInstanceDraining) {
        return not_ready(
            {{"status", state}, {"inflight", status.num_queued() + status.num_running()}},
            "draining",
            "afdd is draining and takes no new requests");
    }
    if (state == kInstanceFailed)
        return not_ready({{"status", state}}, "worker_lost", status.reason());
    if (state == kInstanceHalted)
        return not_ready({{"status", state}}, "worker_halted", status.reason());
    return not_ready({{"status", "loading"}, {"progress", progress_of(status)}},
                     "loading",
                     "the workers are starting");
}

}  // namespace afd::daemon
