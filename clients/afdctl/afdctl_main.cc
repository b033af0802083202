// SPDX-License-Identifier: Apache-2.0
//
// afdctl: asks and steers a running afdd from the command line.
#include <CLI/CLI.hpp>

#include "clients/afdctl/command.h"
#include "clients/command_line.h"
#include "clients/exit_code.h"

namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  afdctl generate \"Once upon a time\"\n"
    "  afdctl generate \"Tell me more\" --max-tokens 50 --temperature 0.8 --seed 7\n"
    "  afdctl status --watch\n"
    "  afdctl context --worker ffn0 --watch\n"
    "  afdctl trace --seconds 2 -o trace.json\n"
    "  afdctl stop --instance demo\n"
    "Exit codes: 0 ok, 1 request failed, 2 wrong usage, 3 cannot reach afdd, 130 interrupted";

}  // namespace

namespace afd::client {
namespace {

CLI::App* add_command(CLI::App& app, const char* name, const char* description) {
    CLI::App* command = app.add_subcommand(name, description);
    command->fallthrough();
    command->allow_extras();
    return command;
}

void add_timeout(CLI::App& command, double& timeout_s, const char* description) {
    command.add_option("--timeout", timeout_s, description)
        ->check(CLI::Range(0.001, 1e6).description(""))
        ->type_name("SECONDS")
        ->capture_default_str();
}

// A flag for each field of proto/sampling.proto.
void add_sampling(CLI::App& command, SamplingSettings& sampling) {
    const auto add = [&](const char* flag, auto set, const char* description) {
        return command.add_option_function<float>(
            flag, [&sampling, set](float value) { (sampling.*set)(value); }, description);
    };
    add("--temperature", &SamplingSettings::set_temperature, "0: greedy; at most 2")
        ->check(CLI::Range(0.0, 2.0).description(""))
        ->type_name("T")
        ->default_str("0");
    add("--min-p", &SamplingSettings::set_min_p, "Of those at least so likely beside the best")
        ->check(CLI::Range(0.0, 1.0).description(""))
        ->type_name("P");
    command
        .add_option_function<uint32_t>(
            "--top-k",
            [&sampling](uint32_t k) { sampling.set_top_k(k); },
            "Of the k most likely tokens; 0: all")
        ->type_name("K");
    add("--top-p", &SamplingSettings::set_top_p, "Of the most likely tokens up to this sum")
        ->check(CLI::Range(1e-6, 1.0).description(""))
        ->type_name("P");
    command
        .add_option_function<uint64_t>(
            "--seed",
            [&sampling](uint64_t seed) { sampling.set_seed(seed); },
            "Same seed, same tokens; drawn if absent")
        ->type_name("N");
}

CLI::App* add_generate(CLI::App& app, GenerateOptions& options) {
    CLI::App* command = add_command(app, "generate", "Stream the continuation of a prompt");
    auto* prompt = command->add_option("prompt", options.prompt, "Text; - reads standard input");
    auto* ids = command->add_option("--prompt-ids", options.prompt_ids, "Token ids, not a text")
                    ->delimiter(',')
                    ->type_name("ID,...");
    prompt->excludes(ids);
    command->add_option("--max-tokens", options.max_tokens, "At most; 0: what the context holds")
        ->type_name("N")
        ->capture_default_str();
    add_sampling(*command, options.sampling);
    command->add_flag("--ignore-eos", options.ignore_eos, "Go on where the model ends its text");
    command->add_flag("--token-ids", options.token_ids, "Also print token ids");
    command->add_flag("--logprobs", options.logprobs, "Also print each token's logprob");
    command->add_flag("--prompt-logprobs", options.prompt_logprobs, "And each prompt token's");
    add_timeout(*command, options.timeout_s, "Cancel the request after this time");
    command->footer("Example: afdctl generate \"Once upon a time\" --max-tokens 50 --seed 7");
    return command;
}

CLI::App* add_context(CLI::App& app, ContextOptions& options) {
    CLI::App* command = add_command(
        app, "context", "Show a worker's ScheduleContext field by field, or set its run_flag");
    command->add_option("--worker", options.worker, "attention0, ffn1, ...")
        ->required()
        ->type_name("NAME");
    command
        ->add_option("--set-run-flag",
                     options.set_run_flag,
                     "0: the worker ends, and stays away; 1: it may run again")
        ->check(CLI::Range(0, 1).description(""))
        ->type_name("0|1");
    command->add_flag("--watch", options.watch, "Again every second until Ctrl-C");
    add_timeout(*command, options.timeout_s, "For afdd's answer");
    return command;
}

CLI::App* add_trace(CLI::App& app, TraceOptions& options) {
    CLI::App* command =
        add_command(app, "trace", "Record what every worker does, for ui.perfetto.dev");
    command->add_option("--seconds", options.seconds, "For so long, or until Ctrl-C")
        ->check(CLI::Range(0.001, 600.0).description(""))
        ->type_name("S")
        ->capture_default_str();
    command->add_option("-o,--output", options.output, "JSON, Chrome's trace-event format")
        ->required()
        ->type_name("FILE");
    return command;
}

int run(int argc, char** argv) {
    CommonOptions common;
    GenerateOptions generate;
    StatusOptions status;
    ContextOptions context;
    TraceOptions trace;
    LifecycleOptions lifecycle;

    CLI::App app("Asks and steers a running afdd.", "afdctl");
    app.footer(kFooter);
    app.set_version_flag("--version", "afdctl " AFD_VERSION);
    app.allow_extras();
    app.require_subcommand(0, 1);
    common.endpoint.add_to(app);
    app.add_flag("--json", common.json, "Print one JSON object on standard output");

    CLI::App* generate_command = add_generate(app, generate);
    CLI::App* status_command =
        add_command(app, "status", "Show workers, queue, speed and who waits for whom");
    status_command->add_flag("--watch", status.watch, "Again every second until Ctrl-C");
    add_timeout(*status_command, status.timeout_s, "For afdd's answer");
    CLI::App* context_command = add_context(app, context);
    CLI::App* trace_command = add_trace(app, trace);
    CLI::App* drain_command =
        add_command(app, "drain", "Admit nothing new; return when nothing is in flight");
    add_timeout(*drain_command, lifecycle.timeout_s, "Give up waiting; afdd goes on draining");
    CLI::App* stop_command = add_command(app, "stop", "Drain, then let afdd exit");
    stop_command->add_flag("!--no-wait", lifecycle.wait, "Do not wait until afdd has exited");
    add_timeout(*stop_command, lifecycle.timeout_s, "Give up waiting; afdd goes on stopping");

    if (const auto exit_code = parse_command_line(app, argc, argv)) return *exit_code;
    if (generate_command->parsed()) {
        if (generate.prompt.empty() && generate.prompt_ids.empty()) {
            print_error({Code::kInvalidArgument,
                         "generate: give a prompt, as in: afdctl generate \"Once upon a time\""});
            return kExitUsage;
        }
        return run_generate(common, generate);
    }
    if (status_command->parsed()) return run_status(common, status);
    if (context_command->parsed()) return run_context(common, context);
    if (trace_command->parsed()) return run_trace(common, trace);
    if (drain_command->parsed()) return run_drain(common, lifecycle);
    if (stop_command->parsed()) return run_stop(common, lifecycle);
    print_error(
        {Code::kInvalidArgument,
         "which command? generate, status, context, trace, drain or stop (see afdctl --help)"});
    return kExitUsage;
}

}  // namespace
}  // namespace afd::client

int main(int argc, char** argv) {
    return afd::client::run(argc, argv);
}
