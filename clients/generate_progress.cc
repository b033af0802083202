// SPDX-License-Identifier: Apache-2.0
#include "clients/generate_progress.h"

#include <string>

namespace afd::client {

afd::Error to_error(const afd::client::Error& message) {
    const uint32_t code = message.code();
    if (code == 0 || code > static_cast<uint32_t>(Code::kUnimplemented)) {
        return {Code::kInternal,
                message.message() + " (unknown code " + std::to_string(code) + ")"};
    }
    return {static_cast<Code>(code),
            message.message().empty() ? "afdd gave no reason" : message.message()};
}

Result<GenerateProgress::Step> GenerateProgress::take(const Response& response) {
    const auto misfit = [this](const std::string& what) {
        over_ = true;
        return afd::Error{Code::kDataLoss, "afdd's answers do not fit together: " + what};
    };
    if (over_) return misfit("a response after the end of the request");
    switch (response.body_case()) {
        case Response::kAccepted:
            if (accepted_) return misfit("accepted twice");
            accepted_ = true;
            num_tokens_ = response.accepted().num_received_tokens();
            return Step::kAccepted;
        case Response::kChunk:
            if (!accepted_) return misfit("a chunk before the request was accepted");
            num_tokens_ += response.chunk().num_tokens();
            return Step::kChunk;
        case Response::kFinished:
            if (!accepted_) return misfit("finished before it was accepted");
            over_ = true;
            if (const uint64_t told = response.finished().num_output_tokens();
                told != num_tokens_) {
                return misfit("chunks with " + std::to_string(num_tokens_) +
                              " tokens, but finished after " + std::to_string(told));
            }
            return Step::kFinished;
        case Response::kError:
            over_ = true;
            return to_error(response.error());
        default:
            return misfit("response of kind " + std::to_string(response.body_case()) +
                          " to a generate request");
    }
}

}  // namespace afd::client
