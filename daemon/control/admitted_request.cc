// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/admitted_request.h"

#include <algorithm>

#include "proto/failure.h"

namespace afd::daemon {

namespace {

// Behind the tokens that were sent before a replay. Without a response format: null.
Result<std::unique_ptr<model::TokenConstraint>> to_constraint(const control::Admit& admit,
                                                              const Vocabulary& vocabulary,
                                                              model::GrammarCache& grammars) {
    std::unique_ptr<model::TokenConstraint> constraint;
    if (!admit.sampling().has_response_format()) return constraint;
    if (vocabulary == nullptr) {
        return failed_precondition("afdd has handed over no vocabulary for response_format");
    }
    std::vector<uint32_t> end_ids;
    for (const uint32_t id : admit.end_ids()) {
        if (id < vocabulary->vocab_size()) end_ids.push_back(id);
    }
    // A token that is text, which the client wants for an end, cuts the text as a stop string does.
    for (const uint32_t id : admit.stop_ids()) {
        if (id < vocabulary->vocab_size() && !vocabulary->is_text(id)) end_ids.push_back(id);
    }
    AFD_ASSIGN(
        auto grammar,
        grammars.grammar(admit.sampling().response_format(), vocabulary, std::move(end_ids)));
    constraint = std::make_unique<model::TokenConstraint>(std::move(grammar));
    for (auto i = static_cast<int>(admit.num_prompt_tokens()); i < admit.tokens_size(); ++i) {
        if (constraint->advance(admit.tokens(i))) continue;
        return internal("token {}, number {} of the output, may not come under response_format",
                        with(admit.tokens(i), i - static_cast<int>(admit.num_prompt_tokens())));
    }
    return constraint;
}

}  // namespace

Result<std::unique_ptr<SequenceRequest>> to_request(const control::Admit& admit,
                                                    const Vocabulary& vocabulary,
                                                    model::GrammarCache& grammars) {
    auto request = std::make_unique<SequenceRequest>();
    request->sequence_id = admit.sequence_id();
    request->tokens.reserve(
        std::max<size_t>(admit.max_total_tokens(), static_cast<size_t>(admit.tokens_size())));
    request->tokens.assign(admit.tokens().begin(), admit.tokens().end());
    request->num_prompt_tokens = admit.num_prompt_tokens();
    request->max_total_tokens = admit.max_total_tokens();
    request->reserved_tokens = admit.reserved_tokens();
    request->sampling = model::to_params(admit.sampling());
    request->prompt_logprobs = admit.prompt_logprobs();
    request->stop_ids.assign(admit.stop_ids().begin(), admit.stop_ids().end());
    request->min_tokens = admit.min_tokens();
    request->num_top_logprobs = std::min(admit.num_top_logprobs(), model::kTopLogprobsMax);
    AFD_ASSIGN(request->constraint, to_constraint(admit, vocabulary, grammars));
    return request;
}

}  // namespace afd::daemon
