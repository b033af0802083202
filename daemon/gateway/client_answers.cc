// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/client_answers.h"

#include <algorithm>
#include <utility>

namespace afd::daemon {

void ClientAnswers::send(ClientConnection& connection, const client::Response& response) {
    connection.send(response);
    if (std::find(waiting_.begin(), waiting_.end(), &connection) == waiting_.end()) {
        waiting_.push_back(&connection);
    }
}

void ClientAnswers::chunk(ClientConnection& connection, uint64_t request_id, client::Chunk chunk) {
    client::Response response;
    response.set_request_id(request_id);
    *response.mutable_chunk() = std::move(chunk);
    send(connection, response);
}

void ClientAnswers::error(ClientConnection& connection, uint64_t request_id, const Error& error) {
    client::Response response;
    response.set_request_id(request_id);
    response.mutable_error()->set_code(static_cast<uint32_t>(error.code));
    response.mutable_error()->set_message(error.message);
    send(connection, response);
}

void ClientAnswers::done(ClientConnection& connection, uint64_t request_id) {
    client::Response response;
    response.set_request_id(request_id);
    response.mutable_done();
    send(connection, response);
}

std::vector<ClientConnection*> ClientAnswers::flush() {
    // A connection that fails to write is closed here, and forgotten.
    std::vector<ClientConnection*> flushed = std::exchange(waiting_, {});
    for (ClientConnection* connection : flushed) connection->flush();
    return flushed;
}

void ClientAnswers::forget(const ClientConnection& connection) {
    std::erase(waiting_, &connection);
}

}  // namespace afd::daemon
