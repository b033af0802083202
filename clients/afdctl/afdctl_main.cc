// SPDX-License-Identifier: Apache-2.0
//
// afdctl: asks and steers a running afdd from the command line.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "clients/afdctl/command.h"
#include "clients/afdctl/generate_flags.h"
#include "clients/command_line.h"
#include "clients/exit_code.h"
#include "proto/standard_descriptors.h"

namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  afdctl generate \"Tell me more\" --max-tokens 50 --temperature 0.8 --seed 7\n"
    "  afdctl trace --seconds 2 -o trace.json\n"
    "  afdctl doctor -- --model DIR --ffn-workers 2\n"
    "Exit codes: 0 ok, 1 request failed, 2 wrong usage, 5 no afdd, 130 interrupted; doctor: afdd's";

constexpr const char* kNoCommand =
    "which command? generate, status, top, metrics, context, trace, doctor, restart-worker, "
    "drain-worker, resize, upgrade, drain or stop; and without an afdd: cluster (see afdctl "
    "--help)";

}  // namespace

namespace afd::client {
namespace {

CLI::App* add_command(CLI::App& app, const char* name, const char* description) {
    CLI::App* command = app.add_subcommand(name, description);
    command->fallthrough();
    command->allow_extras();
    // Instead of the program's, whose examples are of other commands.
    command->footer("Also: --instance NAME or --socket PATH, and --json (afdctl --help)");
    return command;
}

void add_timeout(CLI::App& command, double& timeout_s, const char* description) {
    take_numbers(command.add_option("--timeout", timeout_s, description), 0.001, 1e6)
        ->type_name("SECONDS")
        ->capture_default_str();
}

void add_resume_flags(CLI::App& command, GenerateOptions& options) {
    command.add_flag(
        "--resumable", options.resumable, "Print an id, and go on for 60 s if this is killed");
    take_numbers(
        command.add_option("--keep", options.keep_s, "With --resumable: keep it this long"),
        0.001,
        86400)
        ->type_name("SECONDS");
    command
        .add_option("--resume", options.resume_id, "Go on with such a request; without a prompt")
        ->type_name("ID");
    add_whole_number(
        command, "--received", options.received_chunks, "With --resume: skip the first N chunks");
}

CLI::App* add_generate(CLI::App& app, GenerateOptions& options) {
    CLI::App* command = add_command(app, "generate", "Stream the continuation of a prompt");
    command->add_option(
        "prompt", options.prompt, "Text; - reads standard input, line breaks and all");
    take_whole_numbers(
        command->add_option("--prompt-ids", options.prompt_ids, "Token ids, not a text"),
        0,
        UINT32_MAX)
        ->delimiter(',')
        ->type_name("ID,...")
        ->allow_extra_args(false);
    take_whole_numbers(
        command->add_option(
            "--max-tokens", options.max_tokens, "At most; 0: what the context holds"),
        0,
        UINT32_MAX)
        ->capture_default_str();
    add_sampling_flags(*command, *options.wish.mutable_sampling());
    add_end_flags(*command, options.wish);
    command->add_flag("--ignore-eos", options.ignore_eos, "Go on where the model ends its text");
    command->add_flag("--token-ids", options.token_ids, "Also print token ids");
    command->add_flag("--logprobs", options.logprobs, "Also print each token's logprob");
    command->add_flag("--prompt-logprobs", options.prompt_logprobs, "And each prompt token's");
    add_resume_flags(*command, options);
    add_timeout(*command, options.timeout_s, "Cancel the request after this time");
    // So that help fits a screen, what is seldom wanted stands in one line.
    for (const char* seldom : {"--choice",
                               "--include-stop",
                               "--special-tokens",
                               "--stop-token-ids",
                               "--prompt-logprobs",
                               "--top-logprobs",
                               "--keep",
                               "--received",
                               "--prompt-ids"}) {
        mark_seldom(*command, seldom);
    }
    command->footer(
        "Also: --prompt-ids ID,..., --stop-token-ids ID,..., --include-stop, --choice N,\n"
        "      --special-tokens, --prompt-logprobs, --top-logprobs N, --keep SECONDS=60,\n"
        "      --received CHUNKS\n"
        "Example: afdctl generate \"Once upon a time\" --max-tokens 50 --seed 7");
    return command;
}

CLI::App* add_context(CLI::App& app, ContextOptions& options) {
    CLI::App* command = add_command(
        app, "context", "Show a worker's ScheduleContext field by field, or set its run_flag");
    command->add_option("--worker,worker", options.worker, "attention0, ffn1, ...")
        ->required()
        ->type_name("NAME");
    take_whole_numbers(
        command->add_option("--set-run-flag",
                            options.set_run_flag,
                            "0: the worker ends, and stays away; 1: it may run again"),
        0,
        1)
        ->type_name("0|1");
    command->add_flag(
        "--lanes", options.lanes, "Also the rounds of its lanes, and which of them are open");
    command->add_flag("--watch", options.watch, "Again every second until Ctrl-C");
    add_timeout(*command, options.timeout_s, "For afdd's answer");
    return command;
}

CLI::App* add_trace(CLI::App& app, TraceOptions& options) {
    CLI::App* command =
        add_command(app, "trace", "Record what every worker does, for ui.perfetto.dev");
    take_numbers(command->add_option("--seconds", options.seconds, "For so long, or until Ctrl-C"),
                 0.001,
                 600)
        ->type_name("S")
        ->capture_default_str();
    command->add_option("-o,--output", options.output, "JSON, Chrome's trace-event format")
        ->required()
        ->type_name("FILE");
    return command;
}

CLI::App* add_status(CLI::App& app, StatusOptions& options) {
    CLI::App* command =
        add_command(app, "status", "Show workers, queue, speed and who waits for whom");
    command->add_flag("--watch", options.watch, "Again every second until Ctrl-C");
    add_timeout(*command, options.timeout_s, "For afdd's answer");
    return command;
}

CLI::App* add_top(CLI::App& app, TopOptions& options) {
    CLI::App* command = add_command(
        app, "top", "Watch each worker at work: busy, bubble and idle, rounds, experts");
    command->add_flag("--once", options.once, "Print one second of it and end");
    add_timeout(*command, options.timeout_s, "For afdd's answer");
    return command;
}

CLI::App* add_metrics(CLI::App& app, MetricsOptions& options) {
    CLI::App* command =
        add_command(app, "metrics", "Print what the instance counts, as Prometheus scrapes it");
    command->add_flag(
        "--list", options.list, "Only what there is: name, type, meaning; in Markdown");
    add_timeout(*command, options.timeout_s, "For afdd's answer");
    return command;
}

CLI::App* add_doctor(CLI::App& app, DoctorOptions& options) {
    CLI::App* command = add_command(
        app, "doctor", "Look at this machine: what would hinder an afdd, and how to mend it");
    command->add_option("arguments", options.arguments, "afdd's, as in: doctor -- --demo")
        ->type_name("...");
    command->footer(
        "Example: afdctl doctor -- --model DIR --ffn-workers 2\n"
        "Exit codes are those of an afdd that was started so: 0 it could start, 2 its\n"
        "configuration is wrong, 3 its model, 4 memory cannot be had");
    return command;
}

// The one thing to be done with a cluster from here: `cluster init`.
CLI::App* add_cluster(CLI::App& app, ClusterOptions& options) {
    CLI::App* cluster =
        add_command(app, "cluster", "Make the certificates by which hosts know each other");
    cluster->footer("Example: afdctl cluster init certs --host node1 --host node2");
    CLI::App* command =
        add_command(*cluster, "init", "Make what is missing of a directory of certificates");
    command->add_option("directory", options.directory, "Made if it is not there, with its CA")
        ->required()
        ->type_name("DIR");
    command->add_option("--host", options.hosts, "One that shall be able to join; again for more")
        ->allow_extra_args(false)
        ->type_name("NAME");
    take_whole_numbers(
        command->add_option("--days", options.days, "How long a new certificate is valid"),
        1,
        36500)
        ->capture_default_str();
    command->footer("What is there stays. Example: afdctl cluster init certs --host node1");
    return cluster;
}

CLI::App* add_workers(CLI::App& app,
                      const char* name,
                      const char* description,
                      WorkerOptions& options) {
    CLI::App* command = add_command(app, name, description);
    CLI::Option* workers =
        command
            ->add_option(
                "--worker,worker", options.workers, "attention0, ffn1, ...; one after another")
            ->type_name("NAME");
    command->add_flag("--all", options.all, "Every worker, one after another")->excludes(workers);
    add_timeout(*command, options.timeout_s, "For each of them");
    return command;
}

CLI::App* add_resize(CLI::App& app, ResizeOptions& options) {
    CLI::App* command =
        add_command(app, "resize", "Give the instance other numbers of workers while it serves");
    // As the protocol has them (client.Resize): a slip of the finger is told without an afdd.
    take_whole_numbers(
        command->add_option(
            "--attention", options.attention, "Attention workers; else as many as now"),
        1,
        1024);
    take_whole_numbers(
        command->add_option("--ffn", options.ffn, "FFN workers; else as many as now"), 1, 256);
    command->add_flag("--stop-first",
                      options.stop_first,
                      "End the old ones first: needs less memory, but requests stand still");
    add_timeout(*command, options.timeout_s, "Give up waiting; the resize goes on");
    command->footer("Requests go on with the same tokens. Example: afdctl resize --ffn 2");
    return command;
}

CLI::App* add_upgrade(CLI::App& app, UpgradeOptions& options) {
    CLI::App* command = add_command(
        app, "upgrade", "Put the afdd that is installed now in the place of the one that runs");
    add_timeout(*command, options.timeout_s, "Give up waiting; the upgrade goes on");
    command->footer(
        "Nothing is lost: what runs ends where it runs, what comes goes to the new one.");
    return command;
}

CLI::App* add_drain(CLI::App& app, LifecycleOptions& options) {
    CLI::App* command =
        add_command(app, "drain", "Admit nothing new; return when nothing is in flight");
    add_timeout(*command, options.timeout_s, "Give up waiting; afdd goes on draining");
    command->footer("It cannot be taken back: stop afdd and start it anew to serve again.");
    return command;
}

CLI::App* add_stop(CLI::App& app, LifecycleOptions& options) {
    CLI::App* command = add_command(app, "stop", "Drain, then let afdd exit");
    command->add_flag_callback(
        "--no-wait", [&options] { options.wait = false; }, "Do not wait until afdd has exited");
    add_timeout(*command, options.timeout_s, "Give up waiting; afdd goes on stopping");
    return command;
}

// Before the parse, which reports its errors itself.
bool has_json_flag(int argc, char** argv) {
    for (int i = 1; i < argc && std::string_view(argv[i]) != "--"; ++i) {
        if (std::string_view(argv[i]) == "--json") return true;
    }
    return false;
}

int report_misuse(const CommonOptions& common, const std::string& message) {
    return report_failure(common, {Code::kInvalidArgument, message}, false);
}

// Both commands need to know whom.
int run_workers(const CommonOptions& common, const WorkerOptions& options, bool comes_back) {
    if (options.workers.empty() && !options.all) {
        return report_misuse(common,
                             "which worker? give --worker ffn0, or --all (see afdctl status)");
    }
    return comes_back ? run_restart_worker(common, options) : run_drain_worker(common, options);
}

int run_sizes(const CommonOptions& common, const ResizeOptions& options) {
    if (options.attention || options.ffn) return run_resize(common, options);
    return report_misuse(
        common, "how many workers? give --attention N, --ffn N or both (see afdctl status)");
}

// Of a command that asks no afdd: how one was named all the same; empty: it was not.
std::string needless_flag(const CommonOptions& common) {
    if (common.endpoint.instance) return "--instance";
    return common.endpoint.socket_path ? "--socket" : "";
}

int run_own_doctor(const CommonOptions& common, const DoctorOptions& options) {
    const std::string flag = needless_flag(common);
    if (flag.empty()) return run_doctor(common, options);
    const std::string value =
        common.endpoint.instance ? *common.endpoint.instance : *common.endpoint.socket_path;
    return report_misuse(common,
                         "doctor asks no afdd; give " + flag +
                             " behind --, as in: afdctl doctor -- " + flag + " " + value);
}

int run_cluster(const CommonOptions& common, const ClusterOptions& options) {
    if (const std::string flag = needless_flag(common); !flag.empty()) {
        return report_misuse(common, "cluster asks no afdd; leave " + flag + " out");
    }
    if (!options.directory.empty()) return run_cluster_init(common, options);
    return report_misuse(
        common,
        "cluster: give init and a directory, as in: afdctl cluster init certs --host "
        "node1");
}

// The first flag that was given of the request itself, which has its flags since it began; empty:
// none was. The others say what this run shows of what the request asked for.
std::string settled_flag(const CLI::App& command) {
    constexpr std::array<std::string_view, 6> kOfThisRun = {
        "--resume", "--received", "--timeout", "--token-ids", "--logprobs", "--prompt-logprobs"};
    for (const CLI::Option* option : command.get_options()) {
        const std::string name = option->get_name();
        const bool is_of_this_run = std::ranges::find(kOfThisRun, name) != kOfThisRun.end();
        if (option->count() > 0 && !is_of_this_run) return name;
    }
    return "";
}

std::string misuse_of_resume(const CLI::App& command, const GenerateOptions& options) {
    if (!options.prompt.empty() || !options.prompt_ids.empty()) {
        return "--resume goes on with a request that has its prompt; give none";
    }
    if (options.resumable) return "what --resume goes on with is resumable already";
    const std::string flag = settled_flag(command);
    if (flag.empty()) return "";
    return flag + " was settled when the request began; leave it out with --resume";
}

// What is wrong with the options of generate together; empty: nothing.
std::string misuse_of(const CLI::App& command, const GenerateOptions& options) {
    if (options.keep_s && !options.resumable) return "--keep is for --resumable; give both";
    if (!options.resume_id.empty()) return misuse_of_resume(command, options);
    const bool has_prompt = !options.prompt.empty() || !options.prompt_ids.empty();
    if (options.received_chunks > 0) return "--received is for --resume";
    if (!has_prompt) return "give a prompt, as in: afdctl generate \"Once upon a time\"";
    if (!options.prompt.empty() && !options.prompt_ids.empty()) {
        return "give a prompt or --prompt-ids, not both";
    }
    return "";
}

int run(int argc, char** argv) {
    CommonOptions common;
    GenerateOptions generate;
    StatusOptions status;
    TopOptions top;
    MetricsOptions metrics;
    DoctorOptions doctor;
    ContextOptions context;
    TraceOptions trace;
    WorkerOptions workers;
    ResizeOptions resize;
    UpgradeOptions upgrade;
    ClusterOptions cluster;
    LifecycleOptions lifecycle;

    CLI::App app("Asks and steers a running afdd.", "afdctl");
    app.footer(kFooter);
    app.set_version_flag("--version", "afdctl " AFD_VERSION);
    app.allow_extras();
    app.require_subcommand(0, 1);
    common.endpoint.add_to(app);
    app.add_flag("--json", common.json, "Print one JSON object on standard output");

    CLI::App* generate_command = add_generate(app, generate);
    CLI::App* status_command = add_status(app, status);
    CLI::App* top_command = add_top(app, top);
    CLI::App* metrics_command = add_metrics(app, metrics);
    CLI::App* context_command = add_context(app, context);
    CLI::App* trace_command = add_trace(app, trace);
    CLI::App* doctor_command = add_doctor(app, doctor);
    CLI::App* restart_worker_command =
        add_workers(app,
                    "restart-worker",
                    "End workers and wait for their successors; nothing is lost",
                    workers);
    CLI::App* drain_worker_command = add_workers(
        app, "drain-worker", "End workers, which then stay away until restart-worker", workers);
    CLI::App* resize_command = add_resize(app, resize);
    CLI::App* upgrade_command = add_upgrade(app, upgrade);
    CLI::App* cluster_command = add_cluster(app, cluster);
    CLI::App* drain_command = add_drain(app, lifecycle);
    CLI::App* stop_command = add_stop(app, lifecycle);

    common.json = has_json_flag(argc, argv);
    const auto report = [&common](const afd::Error& error) {
        report_failure(common, error, false);
    };
    if (const auto exit_code = parse_command_line(app, argc, argv, report)) return *exit_code;
    if (generate_command->parsed()) {
        const std::string misuse = misuse_of(*generate_command, generate);
        if (misuse.empty()) return run_generate(common, generate);
        return report_misuse(common, "generate: " + misuse);
    }
    if (status_command->parsed()) return run_status(common, status);
    if (top_command->parsed()) return run_top(common, top);
    if (doctor_command->parsed()) return run_own_doctor(common, doctor);
    if (metrics_command->parsed()) return run_metrics(common, metrics);
    if (context_command->parsed()) return run_context(common, context);
    if (trace_command->parsed()) return run_trace(common, trace);
    if (restart_worker_command->parsed()) return run_workers(common, workers, true);
    if (drain_worker_command->parsed()) return run_workers(common, workers, false);
    if (resize_command->parsed()) return run_sizes(common, resize);
    if (upgrade_command->parsed()) return run_upgrade(common, upgrade);
    if (cluster_command->parsed()) return run_cluster(common, cluster);
    if (drain_command->parsed()) return run_drain(common, lifecycle);
    if (stop_command->parsed()) return run_stop(common, lifecycle);
    return report_misuse(common, kNoCommand);
}

}  // namespace
}  // namespace afd::client

int main(int argc, char** argv) {
    afd::open_standard_descriptors();
    return afd::client::end_output(afd::client::run(argc, argv));
}
