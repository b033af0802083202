// SPDX-License-Identifier: Apache-2.0
//
// Bodies of HTTP requests. Input: a byte that chooses the endpoint, and the body. Oracle: a body is
// read, or refused with a status of the client's fault and words of JSON; what is read asks the
// gateway for a bounded number of things, and the gateway judges them without an end of the
// process.

#include <string>
#include <variant>

#include "daemon/gateway/request/request.h"
#include "daemon/http/answer/generation_answer.h"
#include "daemon/http/answer/model_answers.h"
#include "daemon/http/message/ignored_params.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/http_model.h"

namespace afd::daemon {
namespace {

void check_error(const ApiError& error) {
    AFD_ASSERT(error.status >= 400 && error.status < 500, "status %d", error.status);
    AFD_ASSERT(!error.message.empty(), "an error without words");
    fuzz::must_be_json(error_json(error));
}

void judge(const client::Generate& wish) {
    ServedModel model;
    model.vocab_size = kByteVocabulary;
    model.context_length = 512;
    model.stop_ids = {kEndOfText};
    model.tokenizer = &fuzz::GatewayAround::tokenizer();
    const auto request = Request::create(wish, model, 1024, 1);
    if (request.ok()) {
        AFD_ASSERT(request.value()->max_total_tokens() <= 512, "more than the context");
        return;
    }
    client::Error error;
    error.set_code(static_cast<uint32_t>(request.error().code));
    error.set_message(request.error().message);
    check_error(api_error(error));
}

void take(const ApiResult<GenerationCall>& result, const ApiModel& model) {
    if (const auto* error = std::get_if<ApiError>(&result)) {
        check_error(*error);
        return;
    }
    const auto& call = std::get<GenerationCall>(result);
    std::vector<HttpResponse::Header> headers;
    add_ignored_params(call.ignored, headers);
    for (const auto& [name, value] : headers) {
        for (const char c : value) AFD_ASSERT(c >= ' ' && c < 127, "byte %d in a header", c);
    }
    GenerationAnswer answer(call, model, {.id = "cmpl-1", .model = model.id});
    AFD_ASSERT(answer.num_choices() > 0 && answer.num_choices() <= GenerationCall::kChoicesMax,
               "%zu choices",
               answer.num_choices());
    for (size_t i = 0; i < answer.num_choices(); ++i) {
        const client::Generate wish = answer.take_wish(i);
        if (i == 0 || i + 1 == answer.num_choices()) judge(wish);
    }
}

}  // namespace
}  // namespace afd::daemon

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const afd::daemon::ApiModel model = afd::fuzz::http_model();
    afd::fuzz::FuzzInput input(data, size);
    const uint8_t endpoint = input.take<uint8_t>() % 4;
    const std::string_view body = input.text();
    if (endpoint == 0) afd::daemon::take(afd::daemon::read_completion(body, model), model);
    if (endpoint == 1) afd::daemon::take(afd::daemon::read_chat(body, model), model);
    if (endpoint < 2) return 0;
    const afd::daemon::HttpResponse response = endpoint == 2
                                                   ? afd::daemon::answer_tokenize(body, model)
                                                   : afd::daemon::answer_detokenize(body, model);
    AFD_ASSERT(response.status == 200 || (response.status >= 400 && response.status < 500),
               "status %d",
               response.status);
    afd::fuzz::must_be_json(response.body);
    return 0;
}
