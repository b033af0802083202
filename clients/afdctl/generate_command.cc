// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "clients/afdctl/command.h"
#include "clients/afdctl/standard_input.h"
#include "clients/exit_code.h"

namespace afd::client {
namespace {

std::string reason_name(FinishReason reason) {
    switch (reason) {
        case STOP:
            return "stop";
        case LENGTH:
            return "length";
        case CANCELLED:
            return "cancelled";
        default:
            return "unspecified";
    }
}

Result<std::string> text_of(const GenerateOptions& options, const Cancellation& cancellation) {
    if (options.prompt != "-") return options.prompt;
    AFD_ASSIGN(std::string text, read_standard_input(cancellation));
    if (!text.empty()) return text;
    return afd::Error{Code::kInvalidArgument,
                      "standard input is empty; write a prompt to it, as in: "
                      "printf %s \"Once upon a time\" | afdctl generate -"};
}

Result<Generate> to_message(const GenerateOptions& options, const Cancellation& cancellation) {
    Generate request = options.wish;
    if (!options.prompt_ids.empty()) {
        for (const uint32_t id : options.prompt_ids) request.mutable_token_ids()->add_ids(id);
    } else {
        AFD_ASSIGN(std::string text, text_of(options, cancellation));
        request.set_text(std::move(text));
    }
    request.set_max_tokens(options.max_tokens);
    request.set_return_token_ids(options.token_ids);
    request.set_return_logprobs(options.logprobs);
    request.set_prompt_logprobs(options.prompt_logprobs);
    request.set_ignore_eos(options.ignore_eos);
    if (options.resumable) {
        const auto kept = to_milliseconds(options.keep_s.value_or(kKeepS));
        request.set_resumable_ms(static_cast<uint32_t>(kept.count()));
    }
    return request;
}

// To standard error at once: whoever is killed needs it afterwards. Only this afdd knows the id.
void print_resume_id(const Accepted& accepted, const EndpointFlags& endpoint) {
    if (accepted.resume_id().empty()) return;
    std::fprintf(stderr,
                 "resume with: afdctl generate --resume %s%s\n",
                 accepted.resume_id().c_str(),
                 endpoint.words().c_str());
}

// What is printed at the end only, and is lost with the connection.
bool has_late_output(const CommonOptions& common, const GenerateOptions& options) {
    return common.json || options.token_ids || options.logprobs || options.prompt_logprobs ||
           options.wish.top_logprobs() > 0;
}

// Of a request that can be resumed, whose connection broke. `num_chunks` have come, of which
// `num_printed` need not come again.
void print_received(uint64_t num_chunks, uint64_t num_printed) {
    std::fprintf(
        stderr,
        "%llu chunks have come%s: resume with --received %llu%s\n",
        static_cast<unsigned long long>(num_chunks),
        num_printed == num_chunks ? "" : ", and JSON and lists are printed at the end only",
        static_cast<unsigned long long>(num_printed),
        num_printed == num_chunks ? "" : ", and they come again");
}

// afdd names the field of the protocol; here it has a flag.
afd::Error in_words_of_flags(afd::Error error) {
    constexpr std::string_view kField = "received_chunks = ";
    if (error.message.starts_with(kField)) {
        error.message.replace(0, kField.size(), "--received ");
    }
    return error;
}

Result<Generation> generate_or_resume(Client& client,
                                      const CommonOptions& common,
                                      const GenerateOptions& options,
                                      const OnChunk& on_chunk,
                                      const Cancellation& cancellation) {
    const auto timeout = to_milliseconds(options.timeout_s);
    if (options.resume_id.empty()) {
        AFD_ASSIGN(const Generate request, to_message(options, cancellation));
        return client.generate(
            request, on_chunk, &cancellation, timeout, [&](const Accepted& accepted) {
                print_resume_id(accepted, common.endpoint);
            });
    }
    Resume resume;
    resume.set_id(options.resume_id);
    resume.set_received_chunks(options.received_chunks);
    return client.resume(resume, on_chunk, &cancellation, timeout);
}

void add_top(const std::vector<TopLogprobs>& places,
             const char* name,
             nlohmann::ordered_json& object) {
    for (const TopLogprobs& top : places) {
        auto& entries = object[name].emplace_back(nlohmann::ordered_json::array());
        for (int i = 0; i < top.token_ids_size(); ++i) {
            entries.push_back({top.token_ids(i), top.logprobs(i)});
        }
    }
}

void print_json(const GenerateOptions& options, const Generation& generation) {
    const Finished& finished = generation.finished;
    nlohmann::ordered_json object;
    object["text"] = generation.text;
    object["finish_reason"] = reason_name(finished.reason());
    object["num_prompt_tokens"] = finished.num_prompt_tokens();
    object["num_output_tokens"] = finished.num_output_tokens();
    object["seed"] = generation.seed;
    if (!generation.resume_id.empty()) object["resume_id"] = generation.resume_id;
    if (options.token_ids) {
        object["prompt_ids"] = generation.prompt_ids;
        object["token_ids"] = generation.token_ids;
    }
    if (options.logprobs) object["logprobs"] = generation.logprobs;
    if (options.prompt_logprobs) object["prompt_logprobs"] = generation.prompt_logprobs;
    add_top(generation.top_logprobs, "top_logprobs", object);
    add_top(generation.prompt_top_logprobs, "prompt_top_logprobs", object);
    if (finished.has_matched_stop()) object["matched_stop"] = finished.matched_stop();
    if (finished.has_matched_stop_token_id()) {
        object["matched_stop"] = finished.matched_stop_token_id();
    }
    object["num_cached_tokens"] = finished.num_cached_tokens();
    object["queue_us"] = finished.queue_us();
    object["first_token_us"] = finished.first_token_us();
    object["total_us"] = finished.total_us();
    std::cout << object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

template <typename Values>
void print_list(const char* name, const Values& values) {
    std::cout << name;
    for (const auto value : values) std::cout << " " << value;
    std::cout << "\n";
}

void print_top(const char* name, const std::vector<TopLogprobs>& places) {
    for (const TopLogprobs& top : places) {
        std::cout << name;
        for (int i = 0; i < top.token_ids_size(); ++i) {
            std::cout << " " << top.token_ids(i) << ":" << top.logprobs(i);
        }
        std::cout << "\n";
    }
}

void print_details(const GenerateOptions& options, const Generation& generation) {
    if (options.token_ids) {
        print_list("prompt_ids", generation.prompt_ids);
        print_list("token_ids", generation.token_ids);
    }
    // Nine digits tell a float exactly.
    std::cout.precision(9);
    if (options.prompt_logprobs) print_list("prompt_logprobs", generation.prompt_logprobs);
    if (options.logprobs) print_list("logprobs", generation.logprobs);
    print_top("prompt_top_logprobs", generation.prompt_top_logprobs);
    print_top("top_logprobs", generation.top_logprobs);
}

void print_summary(const Generation& generation) {
    // Both outputs may be one file, and only this one goes there at once.
    std::cout << std::flush;
    const Finished& finished = generation.finished;
    std::fprintf(stderr,
                 "%s: %u prompt and %u output tokens, first after %.1f ms, all after %.1f ms, "
                 "seed %llu\n",
                 reason_name(finished.reason()).c_str(),
                 finished.num_prompt_tokens(),
                 finished.num_output_tokens(),
                 static_cast<double>(finished.first_token_us()) / 1000,
                 static_cast<double>(finished.total_us()) / 1000,
                 static_cast<unsigned long long>(generation.seed));
}

}  // namespace

int run_generate(const CommonOptions& common, const GenerateOptions& options) {
    int exit_code = kExitOk;
    std::optional<Client> client = connect_or_report(common, exit_code);
    if (!client) return exit_code;

    const Cancellation& cancellation = interrupt_cancellation();
    bool line_is_open = false;
    uint64_t num_chunks = options.received_chunks;
    const Result<Generation> result = generate_or_resume(
        *client,
        common,
        options,
        [&](const Chunk& chunk) {
            ++num_chunks;
            if (common.json || chunk.text().empty()) return true;
            std::cout << chunk.text() << std::flush;
            line_is_open = chunk.text().back() != '\n';
            return std::cout.good();
        },
        cancellation);
    if (line_is_open) std::cout << "\n";
    std::cout << std::flush;
    if (!result.ok()) {
        const int code =
            report_failure(common, in_words_of_flags(result.error()), !client->is_silent());
        const bool is_kept = options.resumable || !options.resume_id.empty();
        if (is_kept && client->is_lost() && !cancellation.requested()) {
            print_received(num_chunks,
                           has_late_output(common, options) ? options.received_chunks : num_chunks);
        }
        return cancellation.requested() ? kExitInterrupted : code;
    }
    if (common.json) {
        print_json(options, result.value());
    } else {
        print_details(options, result.value());
    }
    if (!common.json) print_summary(result.value());
    return cancellation.requested() ? kExitInterrupted : kExitOk;
}

}  // namespace afd::client
