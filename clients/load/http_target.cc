// SPDX-License-Identifier: Apache-2.0
#include "clients/load/http_target.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "clients/http/http_exchange.h"

namespace afd::client {
namespace {

using JsonValue = nlohmann::json;
using Deadline = std::chrono::steady_clock::time_point;

constexpr size_t kShownBytesMax = 300;

std::string head_of(const HttpTarget& target, const char* method, std::string_view endpoint) {
    std::string head =
        fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: afd-load/" AFD_VERSION "\r\n",
                    method,
                    target.url.path(endpoint),
                    target.url.authority());
    if (!target.options.api_key.empty()) {
        head += "Authorization: Bearer " + target.options.api_key + "\r\n";
    }
    return head;
}

JsonValue body_of(const HttpTarget& target,
                  const Workload& workload,
                  const PlannedRequest& planned) {
    JsonValue body = {{"model", target.options.model},
                      {"max_tokens", planned.max_tokens},
                      {"temperature", workload.temperature},
                      {"top_p", 1},  // A server may have another default, of its checkpoint.
                      {"seed", planned.sampling_seed},
                      {"stream", true}};
    const std::string& prompt = workload.prompts[planned.prompt_index];
    if (target.options.is_chat) {
        body["messages"] = {{{"role", "user"}, {"content", prompt}}};
    } else {
        body["prompt"] = prompt;
    }
    if (workload.ignore_eos) body["ignore_eos"] = true;
    if (target.takes_token_ids) body["return_token_ids"] = true;
    if (target.takes_usage) body["stream_options"] = {{"include_usage", true}};
    return body;
}

// A server's words go to a terminal, and into a table.
std::string printable(std::string text) {
    if (text.size() > kShownBytesMax) {
        size_t end = kShownBytesMax;
        while (end > 0 && (text[end] & 0xc0) == 0x80) --end;  // Within a character.
        text = text.substr(0, end) + "...";
    }
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c >= 0 && c < ' '; }, ' ');
    return text;
}

std::string hint_for(int status, const HttpTarget& target) {
    switch (status) {
        case 401:
        case 403:
            return target.options.api_key.empty()
                       ? "it wants a key: set AFD_API_KEY, or give --api-key"
                       : "it does not take this key; look at AFD_API_KEY and --api-key";
        case 404:
            return "is the address that of an OpenAI API (--url), and the model there (--model)?";
        default:
            return "";
    }
}

afd::Error refused_by(const HttpTarget& target,
                      std::string_view endpoint,
                      const HttpAnswer& answer) {
    const int status = answer.head.status;
    const std::string hint = hint_for(status, target);
    return {status == 401 || status == 403  ? Code::kPermissionDenied
            : status >= 400 && status < 500 ? Code::kFailedPrecondition
                                            : Code::kUnavailable,
            fmt::format("{} answers {} with {}: {}{}{}",
                        target.peer.name,
                        target.url.path(endpoint),
                        status,
                        error_text(answer.body),
                        hint.empty() ? "" : "; ",
                        hint)};
}

Result<> take_models(const HttpAnswer& answer, HttpTarget& target) {
    const JsonValue list = JsonValue::parse(answer.body, nullptr, false);
    const bool has_models = list.is_object() && list.contains("data") && list["data"].is_array() &&
                            !list["data"].empty();
    if (!has_models) {
        return afd::Error{Code::kUnavailable,
                          target.peer.name + " lists no models at " + target.url.path("models") +
                              "; is it the address of an OpenAI API? If so, name one (--model)"};
    }
    std::string& name = target.options.model;
    for (const JsonValue& model : list["data"]) {
        if (!model.is_object() || !model.contains("id") || !model["id"].is_string()) continue;
        if (!name.empty() && model["id"] != name) continue;
        name = model["id"];
        if (model.contains("root") && model["root"].is_string()) target.model_root = model["root"];
        if (model.contains("max_model_len") && model["max_model_len"].is_number_unsigned()) {
            target.context_length = model["max_model_len"];
        }
        return {};
    }
    if (!name.empty()) return {};  // Some servers take names that they do not list.
    return afd::Error{Code::kUnavailable,
                      target.peer.name + " lists models without ids; name one (--model)"};
}

// How long the server may take for all that it is asked before the load.
struct Patience {
    std::chrono::milliseconds timeout;
    Deadline deadline;
    const Cancellation& cancellation;
};

Result<HttpAnswer> ask(const HttpTarget& target,
                       const std::string& request,
                       const Patience& patience) {
    Result<HttpAnswer> answer =
        exchange_http(target.peer, request, patience.deadline, patience.cancellation);
    if (answer.ok() || answer.error().code != Code::kDeadlineExceeded) return answer;
    return afd::Error{Code::kDeadlineExceeded,
                      fmt::format("{} was asked \"{}\": {}; it hangs, or needs more than {} ms "
                                  "(--request-timeout)",
                                  target.peer.name,
                                  request.substr(0, request.find(" HTTP/")),
                                  answer.error().message,
                                  patience.timeout.count())};
}

Result<> find_model(HttpTarget& target, const Patience& patience) {
    AFD_ASSIGN(const HttpAnswer answer, ask(target, models_request(target), patience));
    target.software = answer.head.server;
    if (answer.head.status == 200) return take_models(answer, target);
    const bool is_named = answer.head.status == 404 && !target.options.model.empty();
    if (is_named) return {};  // A server need not have the list.
    return refused_by(target, "models", answer);
}

// What a server does not know it may refuse: then the request is tried without.
Result<> find_fields(HttpTarget& target, const Workload& workload, const Patience& patience) {
    PlannedRequest planned = plan_request(workload, 0);
    planned.max_tokens = 1;
    HttpAnswer first;
    for (const auto& [takes_token_ids, takes_usage] :
         {std::pair(true, true), std::pair(false, true), std::pair(false, false)}) {
        target.takes_token_ids = takes_token_ids;
        target.takes_usage = takes_usage;
        AFD_ASSIGN(HttpAnswer answer,
                   ask(target, completion_request(target, workload, planned), patience));
        // A server that is full has understood what it was asked.
        if (answer.head.status == 200 || answer.head.status == 429) return {};
        if (takes_token_ids) first = std::move(answer);
        if (first.head.status != 400 && first.head.status != 422) break;
    }
    return refused_by(target, target.options.is_chat ? "chat/completions" : "completions", first);
}

}  // namespace

std::string models_request(const HttpTarget& target) {
    return head_of(target, "GET", "models") + "\r\n";
}

std::string completion_request(const HttpTarget& target,
                               const Workload& workload,
                               const PlannedRequest& planned) {
    const std::string body = body_of(target, workload, planned)
                                 .dump(-1, ' ', false, JsonValue::error_handler_t::replace);
    return head_of(target, "POST", target.options.is_chat ? "chat/completions" : "completions") +
           fmt::format(
               "Content-Type: application/json\r\nAccept: text/event-stream\r\n"
               "Content-Length: {}\r\n\r\n",
               body.size()) +
           body;
}

std::string error_text(const std::string& body) {
    const JsonValue answer = JsonValue::parse(body, nullptr, false);
    if (answer.is_object()) {
        const JsonValue& error = answer.contains("error") ? answer["error"] : answer;
        if (error.is_string()) return printable(error);
        for (const char* field : {"message", "detail"}) {
            if (!error.is_object() || !error.contains(field)) continue;
            const JsonValue& said = error[field];
            // dump() needs stack for each level, and a server may nest as deep as it likes.
            if (said.is_structured()) return printable(body);
            return printable(said.is_string() ? said.get<std::string>() : said.dump());
        }
    }
    if (body.empty()) return "without a reason";
    std::string shown = printable(body);
    std::replace_if(
        shown.begin(), shown.end(), [](char c) { return c > '~' || c < 0; }, '?');
    return shown;
}

Result<HttpTarget> inspect_target(const HttpOptions& options,
                                  const Workload& workload,
                                  std::chrono::milliseconds timeout,
                                  const Cancellation& cancellation) {
    HttpTarget target;
    target.options = options;
    const bool is_key_visible = std::all_of(
        options.api_key.begin(), options.api_key.end(), [](char c) { return c > ' ' && c < 0x7f; });
    if (!is_key_visible) {
        return afd::Error{Code::kInvalidArgument,
                          "the API key has blanks or characters that no key can have"};
    }
    AFD_ASSIGN(target.url, parse_http_url(options.url));
    const Patience patience{timeout, std::chrono::steady_clock::now() + timeout, cancellation};
    AFD_ASSIGN(target.peer, find_peer(target.url, patience.deadline, cancellation));
    AFD_TRY(find_model(target, patience));
    AFD_TRY(find_fields(target, workload, patience));
    return target;
}

}  // namespace afd::client
