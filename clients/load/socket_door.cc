// SPDX-License-Identifier: Apache-2.0
#include "clients/load/socket_door.h"

#include <string>
#include <utility>

namespace afd::client {
namespace {

DoorEvent::Reason reason_of(FinishReason reason) {
    switch (reason) {
        case LENGTH:
            return DoorEvent::Reason::kLength;
        case CANCELLED:
            return DoorEvent::Reason::kCancelled;
        default:
            return DoorEvent::Reason::kStop;
    }
}

}  // namespace

std::optional<Failure> SocketDoor::send(uint64_t request_id,
                                        const Workload& workload,
                                        const PlannedRequest& planned) {
    Request request;
    request.set_request_id(request_id);
    *request.mutable_generate() = to_message(workload, planned);
    last_request_id_ = request_id;
    const Result<> sent = connection_.send(request);
    if (!sent.ok()) return Failure::of(sent.error());
    in_flight_.try_emplace(request_id);
    return std::nullopt;
}

void SocketDoor::give_up(uint64_t request_id) {
    in_flight_.erase(request_id);
    Request request;
    request.set_request_id(next_cancel_id_++);
    request.mutable_cancel()->set_target(request_id);
    // If this fails the connection is broken, which receive() reports; afdd cancels then by itself.
    static_cast<void>(connection_.send(request).ok());
}

Result<> SocketDoor::receive(std::vector<DoorEvent>& events) {
    const Result<> flushed = connection_.flush();
    responses_.clear();
    const Result<> received = connection_.receive(responses_);
    for (const Response& response : responses_) AFD_TRY(take(response, events));
    return received.ok() ? flushed : received;
}

Result<> SocketDoor::take(const Response& response, std::vector<DoorEvent>& events) {
    const uint64_t id = response.request_id();
    const auto found = in_flight_.find(id);
    if (found == in_flight_.end()) {
        // The end of a request that was given up, or of a cancellation.
        const bool was_sent = id != 0 && (id <= last_request_id_ || id >= uint64_t{1} << 63);
        if (was_sent) return {};
        return afd::Error{Code::kDataLoss,
                          "afdd answered request " + std::to_string(id) + ", which was never sent"};
    }
    DoorEvent event;
    event.request_id = id;
    const Result<GenerateProgress::Step> step = found->second.take(response);
    if (!step.ok()) {
        event.kind = DoorEvent::Kind::kFailed;
        event.failure = Failure::of(step.error());
        in_flight_.erase(found);
        events.push_back(std::move(event));
        return {};
    }
    switch (step.value()) {
        case GenerateProgress::Step::kAccepted:
            event.kind = DoorEvent::Kind::kAccepted;
            event.num_prompt_tokens = response.accepted().num_prompt_tokens();
            break;
        case GenerateProgress::Step::kChunk:
            if (response.chunk().num_tokens() == 0) return {};
            event.num_tokens = response.chunk().num_tokens();
            break;
        case GenerateProgress::Step::kFinished:
            event.kind = DoorEvent::Kind::kFinished;
            event.num_tokens = response.finished().num_output_tokens();
            event.num_cached_tokens = response.finished().num_cached_tokens();
            event.reason = reason_of(response.finished().reason());
            in_flight_.erase(found);
            break;
    }
    events.push_back(std::move(event));
    return {};
}

}  // namespace afd::client
