// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/resize_watch.h"

#include <utility>

namespace afd::daemon {

void ResizeWatch::begin(ClientSession& client, uint64_t request_id) {
    client_ = &client;
    request_id_ = request_id;
}

void ResizeWatch::tell(const client::ResizeProgress& progress) {
    if (client_ == nullptr) return;
    client::Response response;
    response.set_request_id(request_id_);
    *response.mutable_resize_progress() = progress;
    answers_.send(*client_, response);
}

void ResizeWatch::end(const Result<client::Resized>& outcome) {
    ClientSession* const client = std::exchange(client_, nullptr);
    if (client == nullptr) return;
    if (!outcome.ok()) {
        answers_.error(*client, request_id_, outcome.error());
        return;
    }
    client::Response response;
    response.set_request_id(request_id_);
    *response.mutable_resized() = outcome.value();
    answers_.send(*client, response);
}

void ResizeWatch::forget(const ClientSession& client) {
    if (client_ == &client) client_ = nullptr;
}

}  // namespace afd::daemon
