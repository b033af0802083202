// SPDX-License-Identifier: Apache-2.0
#include "daemon/options/option_topics.h"

#include <utility>

#include "daemon/options/choice_member.h"
#include "daemon/placement/placement_source.h"
#include "model/unicode/utf8.h"
#include "schedule/plugin/plugin_library.h"

namespace afd::daemon {

namespace {

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

// Workers are told it as text.
Result<> check_ffn_scheduler(const std::string& value) {
    if (value.empty()) return {};
    if (!schedule::names_plugin(value)) {
        return Error{Code::kInvalidArgument,
                     "must be empty, or the path of a library: /path/lib.so"};
    }
    if (model::is_valid_utf8(value)) return {};
    return Error{Code::kInvalidArgument, "the path must be UTF-8; rename it, or link to it"};
}

Result<> check_expert_placement(const std::string& value) {
    if (value == "round_robin" || value.ends_with(".json") || schedule::names_plugin(value) ||
        replicas_of(value) > 0) {
        return {};
    }
    return Error{Code::kInvalidArgument,
                 "must be round_robin, replicas:N, a FILE.json, or /path/lib.so"};
}

Result<> check_replica_choice(const std::string& value) {
    if (value == "session" || value == "host" || schedule::names_plugin(value)) return {};
    return Error{Code::kInvalidArgument,
                 "must be session, host, or the path of a library: /path/lib.so"};
}

// Who chooses and computes, and how rows travel.
std::vector<ConfigOption> row_options() {
    using C = Config;
    return {
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
         .description =
             "How rows travel to the experts; auto: bf16; int8 for int8 experts, the same bits",
         .choices = dispatch_dtype_names()},
        {.name = "dispatch_mode",
         .member = choice<&C::dispatch_mode>(),
         .default_text = "async",
         .unit = "",
         .description = "Who is told of a round: workers with rows, or (debugging) sync: all",
         .choices = names_up_to(schedule::DispatchMode::kAsync)},
        {"row_checksums",
         &C::row_checksums,
         "false",
         "",
         "Find rows that were corrupted between the workers, and send them again"},
    };
}

// What FFN workers hold, and what they wait for.
std::vector<ConfigOption> ffn_worker_options() {
    using C = Config;
    return {
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
         .description = "Library with your own scheduler, instead of ffn_policy: /path/lib.so",
         .check = check_ffn_scheduler},
        {.name = "expert_placement",
         .member = &C::expert_placement,
         .default_text = "round_robin",
         .unit = "",
         .description =
             "Which FFN workers hold an expert: round_robin, replicas:N, FILE.json, /path/lib.so",
         .check = check_expert_placement},
        {.name = "replica_choice",
         .member = &C::replica_choice,
         .default_text = "session",
         .unit = "",
         .description = "Which replica a session uses: session (in turn), host (its own), "
                        "/path/lib.so",
         .check = check_replica_choice},
        {"gather_us",
         &C::gather_us,
         "200",
         "us",
         "Longest wait of ffn_policy gather, all and groups",
         0,
         1000000},
    };
}

}  // namespace

std::vector<ConfigOption> expert_options() {
    std::vector<ConfigOption> options = row_options();
    for (ConfigOption& option : ffn_worker_options()) options.push_back(std::move(option));
    return options;
}

}  // namespace afd::daemon
