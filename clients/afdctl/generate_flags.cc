// SPDX-License-Identifier: Apache-2.0
#include "clients/afdctl/generate_flags.h"

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "clients/command_line.h"
#include "proto/typed_number.h"

namespace afd::client {
namespace {

template <typename Message>
using SetNumber = void (Message::*)(uint32_t);

template <typename Message>
CLI::Option* add_number(CLI::App& command,
                        const char* flag,
                        Message& message,
                        SetNumber<Message> set,
                        const char* description) {
    return take_whole_numbers(
        command.add_option_function<uint32_t>(
            flag, [&message, set](uint32_t value) { (message.*set)(value); }, description),
        0,
        UINT32_MAX);
}

// "17:-2.5"
std::optional<LogitBias> to_bias(const std::string& text) {
    const size_t colon = text.find(':');
    if (colon == std::string::npos) return std::nullopt;
    const std::optional<uint64_t> id = whole_number(text.substr(0, colon));
    const std::optional<double> bias = finite_number(text.substr(colon + 1));
    if (!id || *id > UINT32_MAX || !bias) return std::nullopt;
    LogitBias entry;
    entry.set_token_id(static_cast<uint32_t>(*id));
    entry.set_bias(static_cast<float>(*bias));
    return entry;
}

// What is wrong with a list of them; empty: nothing.
std::string check_biases(const std::string& list) {
    for (const std::string& entry : CLI::detail::split(list, ',')) {
        if (!to_bias(entry)) return entry + " is not ID:BIAS, such as 17:-2.5";
    }
    return {};
}

void add_penalties(CLI::App& command, SamplingSettings& sampling) {
    const auto add = [&](const char* flag, auto set, double low, const char* description) {
        take_numbers(
            command.add_option_function<float>(
                flag, [&sampling, set](float value) { (sampling.*set)(value); }, description),
            low,
            low < 0 ? 2 : 100)
            ->type_name("X");
    };
    add("--repetition-penalty",
        &SamplingSettings::set_repetition_penalty,
        0.01,
        "Divides the logits of tokens already present; 1: off");
    add("--presence-penalty",
        &SamplingSettings::set_presence_penalty,
        -2,
        "Taken from the logit of each output token; -2 to 2");
    add("--frequency-penalty",
        &SamplingSettings::set_frequency_penalty,
        -2,
        "The same, once per occurrence; -2 to 2");
    command
        .add_option_function<std::string>(
            "--logit-bias",
            [&sampling](const std::string& list) {
                for (const std::string& entry : CLI::detail::split(list, ',')) {
                    *sampling.add_logit_bias() = to_bias(entry).value();
                }
            },
            "Added to the logits of these tokens")
        ->check(CLI::Validator([](std::string& list) { return check_biases(list); }, ""))
        ->type_name("ID:BIAS,...");
}

// What is wrong with the file of a schema; empty: it was read.
std::string read_schema(const std::string& path, SamplingSettings& sampling) {
    std::ifstream file(path, std::ios::binary);
    std::string schema;
    std::array<char, 4096> part;
    do {
        file.read(part.data(), part.size());
        schema.append(part.data(), static_cast<size_t>(file.gcount()));
    } while (file);
    if (!file.eof() || file.bad()) return "'" + path + "' cannot be read: " + std::strerror(errno);
    sampling.mutable_response_format()->set_json_schema(std::move(schema));
    return {};
}

void add_response_format(CLI::App& command, SamplingSettings& sampling) {
    CLI::Option* const object = command.add_flag_function(
        "--json-object",
        [&sampling](int64_t) { sampling.mutable_response_format()->set_json_object(true); },
        "Any JSON object; not with --json-schema");
    // In place of what it excludes, which would be a line of its own.
    object->option_text(" ");
    command
        .add_option_function<std::string>(
            "--json-schema",
            [](const std::string&) {},  // The check has read it.
            "JSON that is valid against this schema")
        ->check(CLI::Validator(
            [&sampling](std::string& path) { return read_schema(path, sampling); }, ""))
        ->excludes(object)
        ->option_text("FILE");
}

}  // namespace

void add_sampling_flags(CLI::App& command, SamplingSettings& sampling) {
    const auto add =
        [&](const char* flag, auto set, double low, double high, const char* description) {
            return take_numbers(
                command.add_option_function<float>(
                    flag, [&sampling, set](float value) { (sampling.*set)(value); }, description),
                low,
                high);
        };
    add("--temperature", &SamplingSettings::set_temperature, 0, 2, "0: greedy; at most 2")
        ->type_name("T")
        ->default_str("0");
    add("--min-p",
        &SamplingSettings::set_min_p,
        0,
        1,
        "Of tokens at least P times as likely as the best")
        ->type_name("P");
    add_number(command,
               "--top-k",
               sampling,
               &SamplingSettings::set_top_k,
               "Of the k most likely tokens; 0: all")
        ->type_name("K");
    add("--top-p",
        &SamplingSettings::set_top_p,
        1e-6,
        1,
        "Of the most likely tokens up to this sum")
        ->type_name("P");
    add_penalties(command, sampling);
    add_response_format(command, sampling);
    take_whole_numbers(command.add_option_function<uint64_t>(
                           "--seed",
                           [&sampling](uint64_t seed) { sampling.set_seed(seed); },
                           "Same seed, same tokens; drawn if absent"),
                       0,
                       UINT64_MAX);
    add_number(command,
               "--choice",
               sampling,
               &SamplingSettings::set_choice,
               "Another choice of the same seed");
}

void add_end_flags(CLI::App& command, Generate& wish) {
    command
        .add_option_function<std::vector<std::string>>(
            "--stop",
            [&wish](const std::vector<std::string>& stops) {
                for (const std::string& stop : stops) wish.add_stop(stop);
            },
            "End before this text; may be given again")
        ->type_name("TEXT")
        ->allow_extra_args(false);
    command.add_flag_function(
        "--include-stop",
        [&wish](int64_t) { wish.set_include_stop_str_in_output(true); },
        "End behind it instead");
    take_whole_numbers(command.add_option_function<std::vector<uint32_t>>(
                           "--stop-token-ids",
                           [&wish](const std::vector<uint32_t>& ids) {
                               for (const uint32_t id : ids) wish.add_stop_token_ids(id);
                           },
                           "End with one of these tokens, too"),
                       0,
                       UINT32_MAX)
        ->delimiter(',')
        ->type_name("ID,...")
        ->allow_extra_args(false);
    add_number(command,
               "--min-tokens",
               wish,
               &Generate::set_min_tokens,
               "Do not end before this many tokens");
    add_number(command,
               "--request-timeout-ms",
               wish,
               &Generate::set_timeout_ms,
               "End with an error after this time, also in the queue");
    add_number(command,
               "--top-logprobs",
               wish,
               &Generate::set_top_logprobs,
               "Also print the most likely tokens; at most 20");
    command.add_flag_function(
        "--special-tokens",
        [&wish](int64_t) { wish.set_keep_special_tokens(true); },
        "Special tokens are text, too");
}

}  // namespace afd::client
