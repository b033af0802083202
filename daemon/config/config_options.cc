// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/config_options.h"

#include <algorithm>
#include <charconv>

#include "daemon/config/cpu_plan.h"
#include "ops/format/numeric_class.h"
#include "proto/did_you_mean.h"
#include "proto/socket_path.h"
#include "schedule/plugin/plugin_library.h"

namespace afd::daemon {

namespace {

constexpr uint64_t kDayMs = 86400000;

// The rule of check_instance_name(), in words that fit behind the option's name and value.
Result<> check_instance(const std::string& value) {
    bool good = !value.empty() && value.size() <= 32;
    for (const char c : value) {
        good = good && ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_');
    }
    if (good) return {};
    return Error{Code::kInvalidArgument, "must be 1 to 32 of a-z, 0-9 and '_'"};
}

Result<> check_pin(const std::string& value) {
    if (value == "none" || value == "auto") return {};
    const auto lists = parse_cpu_lists(value);
    return lists.ok() ? Result<>() : Result<>(lists.error());
}

Result<> check_weight_cache(const std::string& value) {
    if (value == "auto" || value == "off" || value.starts_with('/')) return {};
    return Error{Code::kInvalidArgument, "must be auto, off, or a path that begins with /"};
}

Result<> check_socket(const std::string& value) {
    return value.empty() ? Result<>() : check_socket_path(value);
}

Result<> check_ffn_scheduler(const std::string& value) {
    if (value.empty() || schedule::names_plugin(value)) return {};
    return Error{Code::kInvalidArgument, "must be empty, or the path of a library: /path/lib.so"};
}

Result<> check_expert_placement(const std::string& value) {
    if (value == "round_robin" || value.ends_with(".json") || schedule::names_plugin(value)) {
        return {};
    }
    return Error{Code::kInvalidArgument, "must be round_robin, a FILE.json, or /path/lib.so"};
}

Result<> check_replica_choice(const std::string& value) {
    if (value == "session" || schedule::names_plugin(value)) return {};
    return Error{Code::kInvalidArgument, "must be session, or the path of a library: /path/lib.so"};
}

// The member is an enum whose values count from 0.
template <auto member>
constexpr ChoiceMember choice() {
    using Choice = std::remove_reference_t<decltype(std::declval<Config&>().*member)>;
    return {[](Config& config, size_t index) { config.*member = static_cast<Choice>(index); },
            [](const Config& config) { return static_cast<size_t>(config.*member); }};
}

// The names of an enum whose values count from 0 to `last`.
template <typename Choice>
std::vector<std::string> names_up_to(Choice last) {
    std::vector<std::string> names;
    for (size_t i = 0; i <= static_cast<size_t>(last); ++i) {
        names.emplace_back(name_of(static_cast<Choice>(i)));
    }
    return names;
}

// auto, or a RowDtype.
constexpr ChoiceMember kDispatchDtype = {
    [](Config& config, size_t index) {
        // "auto" is the first choice and stands for no value; the dtypes follow.
        config.dispatch_dtype.reset();
        if (index > 0) config.dispatch_dtype = static_cast<schedule::RowDtype>(index - 1);
    },
    [](const Config& config) {
        return config.dispatch_dtype ? static_cast<size_t>(*config.dispatch_dtype) + 1 : 0;
    }};

std::vector<std::string> dispatch_dtype_names() {
    std::vector<std::string> names = names_up_to(schedule::RowDtype::kFp8);
    names.insert(names.begin(), "auto");
    return names;
}

std::vector<std::string> numeric_class_names() {
    std::vector<std::string> names = {"auto"};
    for (const ops::NumericClass c : ops::numeric_classes()) names.emplace_back(ops::name_of(c));
    return names;
}

std::vector<ConfigOption> make_options() {
    using C = Config;
    return {
        {"model", &C::model, "", "", "Directory of the model (config.json, *.safetensors)"},
        {.name = "instance",
         .member = &C::instance,
         .default_text = "default",
         .unit = "",
         .description = "Name of this instance: of its sockets and shared memory",
         .check = check_instance},
        {.name = "topology",
         .member = choice<&C::topology>(),
         .default_text = "disaggregated",
         .unit = "",
         .description = "Experts in FFN workers, or inside each attention worker",
         .choices = names_up_to(Topology::kColocated)},
        {"attention_workers", &C::attention_workers, "1", "", "Attention workers (A)", 1, 1024},
        {"ffn_workers", &C::ffn_workers, "1", "", "FFN workers (F)", 1, 256},
        {"micro_batches",
         &C::micro_batches,
         "0",
         "",
         "Micro-batches in flight per attention worker (M); 0: 2 if cores are enough, else 1",
         0,
         64},
        {"micro_batch_size",
         &C::micro_batch_size,
         "256",
         "tokens",
         "Tokens of a micro-batch: size of a prefill chunk (BS)",
         1,
         4096},
        {.name = "dispatch",
         .member = choice<&C::dispatch>(),
         .default_text = "auto",
         .unit = "",
         .description = "How prompts get to FFN workers: by windows, in two phases, or by length",
         .choices = names_up_to(Dispatch::kTwoPhase)},
        {"prefill_tokens_max",
         &C::prefill_tokens_max,
         "0",
         "tokens",
         "Tokens of a two-phase prefill batch; 0: 8 micro-batches",
         0,
         uint64_t{1} << 20},
        {"two_phase_threshold",
         &C::two_phase_threshold,
         "0",
         "tokens",
         "dispatch = auto: longer prompts go in two phases; 0: micro_batch_size",
         0,
         uint64_t{1} << 20},
        {"two_phase_block",
         &C::two_phase_block,
         "1024",
         "tokens",
         "Tokens that a two-phase round sends and returns at a time",
         1,
         65536},
        {"two_phase_memory_max",
         &C::two_phase_memory_max,
         "0",
         "bytes",
         "Memory of the two-phase rounds of an FFN worker; 0: what /dev/shm has",
         0,
         uint64_t{1} << 46},
        {"kv_tokens",
         &C::kv_tokens,
         "32768",
         "tokens",
         "KV cache of each attention worker",
         64,
         uint64_t{1} << 31},
        {"max_sequences",
         &C::max_sequences,
         "64",
         "",
         "Sequences that run at once on an attention worker",
         1,
         65536},
        {"max_queue",
         &C::max_queue,
         "512",
         "",
         "Requests that wait for KV room; more are refused",
         0,
         1000000},
        {"attention_threads",
         &C::attention_threads,
         "0",
         "",
         "Compute threads of an attention worker; 0: share of the cores",
         0,
         1024},
        {"ffn_threads",
         &C::ffn_threads,
         "0",
         "",
         "Compute threads of an FFN worker; 0: share of the cores",
         0,
         1024},
        {.name = "numeric_class",
         .member = &C::numeric_class,
         .default_text = "auto",
         .unit = "",
         .description = "Kernels; results are bit-identical within a class",
         .choices = numeric_class_names()},
        {"spin_us",
         &C::spin_us,
         "50",
         "us",
         "Spin this long before sleeping; 0: sleep at once",
         0,
         1000000},
        {.name = "router",
         .member = choice<&C::router>(),
         .default_text = "attention",
         .unit = "",
         .description = "Which workers choose a token's experts; the bits are the same",
         .choices = names_up_to(schedule::RouterPlacement::kFfn)},
        {.name = "shared_experts",
         .member = choice<&C::shared_experts>(),
         .default_text = "ffn",
         .unit = "",
         .description = "Which workers compute the shared experts; the bits are the same",
         .choices = names_up_to(SharedExperts::kAttention)},
        {.name = "dispatch_dtype",
         .member = kDispatchDtype,
         .default_text = "auto",
         .unit = "",
         .description = "How rows travel to the experts; int8 for int8 experts, the same bits",
         .choices = dispatch_dtype_names()},
        {.name = "ffn_policy",
         .member = choice<&C::ffn_policy>(),
         .default_text = "gather",
         .unit = "",
         .description = "What an FFN worker waits for before it computes",
         .choices = names_up_to(schedule::FfnPolicy::kGroups)},
        {"ffn_sync_group_size",
         &C::ffn_sync_group_size,
         "1",
         "",
         "ffn_policy = groups: sessions that are gathered together",
         1,
         1024},
        {.name = "ffn_scheduler",
         .member = &C::ffn_scheduler,
         .default_text = "",
         .unit = "",
         .description = "Library of an own scheduler, in place of ffn_policy: /path/lib.so",
         .check = check_ffn_scheduler},
        {.name = "expert_placement",
         .member = &C::expert_placement,
         .default_text = "round_robin",
         .unit = "",
         .description =
             "Which FFN workers hold which experts: round_robin, FILE.json, /path/lib.so",
         .check = check_expert_placement},
        {.name = "replica_choice",
         .member = &C::replica_choice,
         .default_text = "session",
         .unit = "",
         .description = "Which replica a session uses: session (modulo replicas), /path/lib.so",
         .check = check_replica_choice},
        {"gather_us",
         &C::gather_us,
         "200",
         "us",
         "Longest wait of ffn_policy gather, all and groups",
         0,
         1000000},
        {"wait_report_ms",
         &C::wait_report_ms,
         "1000",
         "ms",
         "Report who waits for whom after this time",
         1,
         kDayMs},
        {"round_timeout_ms",
         &C::round_timeout_ms,
         "120000",
         "ms",
         "End the requests of a round that takes longer",
         1,
         kDayMs},
        {"hang_timeout_ms",
         &C::hang_timeout_ms,
         "60000",
         "ms",
         "Kill a worker without progress for this time; 0: never",
         0,
         kDayMs},
        {"restart_first_ms",
         &C::restart_first_ms,
         "100",
         "ms",
         "Delay before a dead worker is restarted; doubles each time",
         0,
         kDayMs},
        {"restart_max_ms", &C::restart_max_ms, "5000", "ms", "Longest such delay", 0, kDayMs},
        {"restart_reset_ms",
         &C::restart_reset_ms,
         "10000",
         "ms",
         "Healthy time after which the delay starts anew",
         0,
         kDayMs},
        {"start_attempts",
         &C::start_attempts,
         "5",
         "",
         "Give up after so many failures before a worker was ever ready",
         1,
         1000},
        {"drain_timeout_ms",
         &C::drain_timeout_ms,
         "30000",
         "ms",
         "At the end, wait this long for requests in flight",
         0,
         kDayMs},
        {"output_buffer_kib",
         &C::output_buffer_kib,
         "4096",
         "KiB",
         "Unread answers of one connection; more ends its requests",
         64,
         uint64_t{1} << 20},
        {.name = "pin",
         .member = &C::pin,
         .default_text = "auto",
         .unit = "",
         .description = "Pin workers to cores: none, auto, or lists \"0-3;4-7\"",
         .check = check_pin},
        {.name = "weight_cache",
         .member = &C::weight_cache,
         .default_text = "auto",
         .unit = "",
         .description = "Packed weights kept on disk: auto, off, or a directory of yours",
         .check = check_weight_cache},
        {.name = "socket",
         .member = &C::socket,
         .default_text = "",
         .unit = "",
         .description = "Client socket; empty: NAME.sock in the runtime directory",
         .check = check_socket},
        {.name = "log_level",
         .member = &C::log_level,
         .default_text = "info",
         .unit = "",
         .description = "Least severe lines to log",
         .choices = {"trace", "debug", "info", "warn", "error", "off"}},
        {.name = "log_format",
         .member = &C::log_format,
         .default_text = "text",
         .unit = "",
         .description = "Form of the log lines",
         .choices = {"text", "json"}},
        {"spawn", &C::spawn, "true", "", "Start the workers; false: they are started by hand"},
    };
}

std::string join(const std::vector<std::string>& words) {
    std::string joined;
    for (const std::string& word : words) joined += (joined.empty() ? "" : ", ") + word;
    return joined;
}

Error refuse(const ConfigOption& option, const std::string& text, const std::string& why) {
    return Error{Code::kInvalidArgument, std::string(option.name) + " = '" + text + "': " + why};
}

Result<> set_integer(const ConfigOption& option, const std::string& text, uint64_t& target) {
    uint64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, status] = std::from_chars(text.data(), end, value);
    if (status != std::errc() || stop != end || value < option.min || value > option.max) {
        return refuse(option, text, "must be " + allowed_values(option));
    }
    target = value;
    return {};
}

Result<size_t> place_among_choices(const ConfigOption& option, const std::string& text) {
    const auto& choices = option.choices;
    const auto found = std::find(choices.begin(), choices.end(), text);
    if (found != choices.end()) return static_cast<size_t>(found - choices.begin());
    return refuse(option, text, "must be " + allowed_values(option) + did_you_mean(text, choices));
}

Result<> set_string(const ConfigOption& option, const std::string& text, std::string& target) {
    if (!option.choices.empty()) AFD_TRY(place_among_choices(option, text));
    if (option.check != nullptr) {
        const Result<> checked = option.check(text);
        if (!checked.ok()) return refuse(option, text, checked.error().message);
    }
    target = text;
    return {};
}

}  // namespace

std::span<const ConfigOption> config_options() {
    // One table: flags, keys, variables, --check-config and the tests all read it.
    static const std::vector<ConfigOption> options = make_options();
    return options;
}

std::vector<std::string> option_names() {
    std::vector<std::string> names;
    for (const ConfigOption& option : config_options()) names.emplace_back(option.name);
    return names;
}

std::string flag_name(const std::string& option) {
    std::string flag = "--" + option;
    std::replace(flag.begin() + 2, flag.end(), '_', '-');
    return flag;
}

std::string environment_name(const std::string& option) {
    std::string name = "AFD_" + option;
    for (char& c : name) {
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    }
    return name;
}

std::string allowed_values(const ConfigOption& option) {
    if (std::holds_alternative<bool Config::*>(option.member)) return "true or false";
    if (std::holds_alternative<uint64_t Config::*>(option.member)) {
        const std::string unit =
            option.unit[0] == '\0' ? "" : std::string(" (") + option.unit + ")";
        return "an integer from " + std::to_string(option.min) + " to " +
               std::to_string(option.max) + unit;
    }
    return option.choices.empty() ? "text" : "one of " + join(option.choices);
}

Result<> set_option(const ConfigOption& option, const std::string& text, Config& config) {
    if (const auto* member = std::get_if<uint64_t Config::*>(&option.member)) {
        return set_integer(option, text, config.*(*member));
    }
    if (const auto* member = std::get_if<std::string Config::*>(&option.member)) {
        return set_string(option, text, config.*(*member));
    }
    if (const auto* member = std::get_if<ChoiceMember>(&option.member)) {
        AFD_ASSIGN(const size_t place, place_among_choices(option, text));
        member->set(config, place);
        return {};
    }
    if (text != "true" && text != "false") {
        return refuse(option, text, "must be " + allowed_values(option));
    }
    config.*std::get<bool Config::*>(option.member) = text == "true";
    return {};
}

std::string option_literal(const ConfigOption& option, const Config& config) {
    if (const auto* member = std::get_if<uint64_t Config::*>(&option.member)) {
        return std::to_string(config.*(*member));
    }
    if (const auto* member = std::get_if<bool Config::*>(&option.member)) {
        return config.*(*member) ? "true" : "false";
    }
    if (const auto* member = std::get_if<ChoiceMember>(&option.member)) {
        return '"' + option.choices[member->get(config)] + '"';
    }
    const std::string& value = config.*std::get<std::string Config::*>(option.member);
    std::string literal = "\"";
    for (const char c : value) {
        if (c == '"' || c == '\\') literal += '\\';
        literal += c;
    }
    return literal + "\"";
}

}  // namespace afd::daemon
