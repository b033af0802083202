// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/http_exchange.h"

#include <fmt/core.h>

#include <ctime>
#include <utility>

#include "daemon/gateway/request/random_seed.h"
#include "daemon/http/message/ignored_params.h"
#include "daemon/program/version.h"

namespace afd::daemon {

namespace {

AnswerHead head_of(const GenerationCall& call, const ApiModel& model) {
    return {
        .id = fmt::format(
            "{}-{:016x}{:016x}", call.is_chat ? "chatcmpl" : "cmpl", draw_random(), draw_random()),
        .created = std::time(nullptr),
        .model = model.id,
        .system_fingerprint = fmt::format("afd-{}", kVersion)};
}

std::shared_ptr<const AnswerForm> form_of(const GenerationCall& call, const AnswerHead& head) {
    AnswerForm form{call, head};
    // What was asked is not asked again; it may be large.
    form.call.prompts = std::vector<client::Generate>(call.prompts.size());
    form.call.common.Clear();
    return std::make_shared<const AnswerForm>(std::move(form));
}

// An older afdd did not keep its names.
AnswerHead head_of(const AnswerForm& form, const ApiModel& model) {
    AnswerHead head = form.head;
    if (head.model.empty()) head.model = model.id;
    if (head.system_fingerprint.empty()) head.system_fingerprint = fmt::format("afd-{}", kVersion);
    return head;
}

}  // namespace

HttpExchange HttpExchange::begun(GenerationCall call, const ApiModel& model, uint64_t first_id) {
    HttpExchange exchange(first_id);
    add_ignored_params(call.ignored, exchange.headers_);
    // Long names of many places: the call is kept as long as it runs, and longer if it is
    // resumable.
    call.ignored = {};
    const AnswerHead head = head_of(call, model);
    if (call.resumable_ms > 0) {
        exchange.form_ = form_of(call, head);
        exchange.numbers_.emplace(0);
    }
    exchange.answer_ = std::make_unique<GenerationAnswer>(std::move(call), model, head);
    return exchange;
}

HttpExchange HttpExchange::probe(const ApiModel& model, uint64_t first_id) {
    GenerationCall call;
    client::Generate& wish = call.prompts.emplace_back();
    wish.mutable_token_ids()->add_ids(0);
    wish.set_max_tokens(1);
    HttpExchange exchange = begun(std::move(call), model, first_id);
    exchange.is_probe_ = true;
    return exchange;
}

HttpExchange HttpExchange::resumed(std::shared_ptr<const AnswerForm> form,
                                   uint64_t num_received,
                                   const ApiModel& model,
                                   uint64_t request_id) {
    HttpExchange exchange(request_id);
    exchange.answer_ = std::make_unique<GenerationAnswer>(form->call, model, head_of(*form, model));
    exchange.form_ = std::move(form);
    exchange.numbers_.emplace(num_received);
    exchange.is_resumed_ = true;
    return exchange;
}

void HttpExchange::take(const client::Response& response, std::string& events) {
    answer_->on_response(response.request_id() - first_id_, response, events);
    if (!is_resumable()) return;
    if (response.has_accepted()) {
        headers_.emplace_back("X-Afd-Resume", response.accepted().resume_id());
        has_id_ = true;
        if (is_resumed_) num_missing_ = response.accepted().num_answers();
    } else if (num_missing_ > 0) {
        --*num_missing_;
    }
}

std::vector<uint64_t> HttpExchange::take_cut() {
    std::vector<uint64_t> ids;
    for (const size_t choice : answer_->take_cut()) {
        if (!is_resumable()) ids.push_back(first_id_ + choice);
    }
    return ids;
}

std::string HttpExchange::to_send(std::string_view events) {
    // An error is no part of what can be said again.
    if (!numbers_ || answer_->error()) return std::string(events);
    return numbers_->take(events);
}

}  // namespace afd::daemon
