// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/change_watch.h"

#include <utility>

namespace afd::daemon {

void ChangeWatch::begin(ClientSession& client, uint64_t request_id) {
    client_ = &client;
    request_id_ = request_id;
}

void ChangeWatch::tell(const std::string& text) {
    if (client_ == nullptr) return;
    client::Response response;
    response.set_request_id(request_id_);
    response.mutable_progress()->set_text(text);
    answers_.send(*client_, response);
}

void ChangeWatch::end(const Result<client::Response>& outcome) {
    ClientSession* const client = std::exchange(client_, nullptr);
    if (client == nullptr) return;
    if (!outcome.ok()) {
        answers_.error(*client, request_id_, outcome.error());
        return;
    }
    client::Response response = outcome.value();
    response.set_request_id(request_id_);
    answers_.send(*client, response);
}

void ChangeWatch::forget(const ClientSession& client) {
    if (client_ == &client) client_ = nullptr;
}

}  // namespace afd::daemon
