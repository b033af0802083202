// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/flight/client_answers.h"

#include <algorithm>
#include <utility>

#include "daemon/gateway/session/kept_stream.h"

namespace afd::daemon {

namespace {

client::Response response_of(const Error& error) {
    client::Response response;
    response.mutable_error()->set_code(static_cast<uint32_t>(error.code));
    response.mutable_error()->set_message(error.message);
    return response;
}

}  // namespace

void ClientAnswers::send(ClientSession& client, const client::Response& response) {
    // It may close as it is told: of two answers in a row the second finds it forgotten.
    if (!client.is_open()) return;
    // Queued only. Writing comes at the end of a turn, once for all answers of a connection.
    client.send(response);
    if (std::find(waiting_.begin(), waiting_.end(), &client) == waiting_.end()) {
        waiting_.push_back(&client);
    }
}

void ClientAnswers::chunk(const Flight& flight, client::Chunk chunk) {
    if (flight.is_cancelled) return;
    client::Response response;
    *response.mutable_chunk() = std::move(chunk);
    tell(flight, std::move(response));
}

void ClientAnswers::finished(const Flight& flight, client::Finished finished) {
    client::Response response;
    *response.mutable_finished() = std::move(finished);
    tell(flight, std::move(response));
}

void ClientAnswers::error(const Flight& flight, const Error& error) {
    tell(flight, response_of(error));
}

void ClientAnswers::tell(const Flight& flight, client::Response response) {
    if (flight.client == nullptr) return;
    if (flight.kept != nullptr) flight.kept->keep(response);
    response.set_request_id(flight.request_id);
    send(*flight.client, response);
}

void ClientAnswers::error(ClientSession& client, uint64_t request_id, const Error& error) {
    client::Response response = response_of(error);
    response.set_request_id(request_id);
    send(client, response);
}

void ClientAnswers::done(ClientSession& client, uint64_t request_id) {
    client::Response response;
    response.set_request_id(request_id);
    response.mutable_done();
    send(client, response);
}

std::vector<ClientSession*> ClientAnswers::flush() {
    // A session that fails to write is closed here, and forgotten.
    std::vector<ClientSession*> flushed = std::exchange(waiting_, {});
    for (ClientSession* client : flushed) client->flush();
    return flushed;
}

void ClientAnswers::forget(const ClientSession& client) {
    std::erase(waiting_, &client);
}

}  // namespace afd::daemon
