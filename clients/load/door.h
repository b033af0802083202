// SPDX-License-Identifier: Apache-2.0
#pragma once

// Door: the way by which a load run's requests reach a server, and what it answers: afdd's socket
// (clients/load/socket_door.h), or HTTP (clients/load/http_door.h). For one thread with a poll
// loop; nothing here blocks.

#include <poll.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "clients/load/failure.h"
#include "clients/load/workload.h"
#include "proto/status.h"

namespace afd::client {

// What was heard about a request: kAccepted at most once, kTokens..., then kFinished or kFailed.
struct DoorEvent {
    enum class Kind { kAccepted, kTokens, kFinished, kFailed };
    enum class Reason { kStop, kLength, kCancelled };

    uint64_t request_id = 0;
    Kind kind = Kind::kTokens;
    // kTokens: those that came now, at least one. kFinished: of the whole answer, if it is more
    // than came before: they came with the others, nobody says with which.
    uint64_t num_tokens = 0;
    uint32_t num_prompt_tokens = 0;  // kAccepted, kFinished; 0: not told.
    uint32_t num_cached_tokens = 0;  // kFinished: of the prompt, from the server's prefix cache.
    Reason reason = Reason::kStop;   // kFinished.
    bool is_count_guessed = false;   // kFinished: the server does not tell how many tokens came.
    Failure failure{};               // kFailed.
};

class Door {
  public:
    virtual ~Door() = default;

    // REQUIRES: request_id is larger than any before.
    // Returns why it could not be sent; nothing more is then heard about it.
    virtual std::optional<Failure> send(uint64_t request_id,
                                        const Workload& workload,
                                        const PlannedRequest& planned) = 0;

    // Nobody waits for the answer any longer: the server is told, and nothing more is heard.
    virtual void give_up(uint64_t request_id) = 0;

    // What to poll for before receive(), unless has_heard().
    virtual pollfd watched() const = 0;

    // receive() has something to tell at once: it was heard while sending.
    virtual bool has_heard() const = 0;

    // Sends what waits for room and appends what has arrived to `events`, also if it fails.
    // Errors: nothing can be sent or heard any more, for any request.
    virtual Result<> receive(std::vector<DoorEvent>& events) = 0;
};

}  // namespace afd::client
