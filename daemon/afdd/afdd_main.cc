// SPDX-License-Identifier: Apache-2.0
//
// afdd: the supervisor and gateway of an instance. Exit codes: exit_codes.h.

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <utility>
#include <vector>

#include "daemon/afdd/afdd.h"
#include "daemon/afdd/http_setup.h"
#include "daemon/config/cpu_plan.h"
#include "daemon/doctor/doctor.h"
#include "daemon/doctor/model_check.h"
#include "daemon/doctor/surroundings.h"
#include "daemon/gateway/request/prompt.h"
#include "daemon/handover/predecessor.h"
#include "daemon/handover/successor.h"
#include "daemon/instance/file_budget.h"
#include "daemon/instance/start_remarks.h"
#include "daemon/instance/weight_cache_choice.h"
#include "daemon/joined_host/joined_host.h"
#include "daemon/loop/descriptor_limit.h"
#include "daemon/options/command_line.h"
#include "daemon/options/misspelt_variables.h"
#include "daemon/options/resolved_config.h"
#include "daemon/options/unused_options.h"
#include "daemon/program/exit_codes.h"
#include "daemon/program/logging.h"
#include "daemon/program/service_notifier.h"
#include "daemon/slurm/slurm_job.h"
#include "model/attention/attention_config.h"
#include "proto/failure.h"
#include "proto/standard_descriptors.h"
#include "proto/standard_output.h"
#include "proto/typed_number.h"

namespace afd::daemon {

namespace {

// Tests put other programs in the place of the workers.
std::string worker_directory() {
    const char* chosen = std::getenv("AFD_WORKER_DIRECTORY");
    return chosen != nullptr ? chosen : program_directory();
}

ExitCode refuse(ExitCode code, const Error& why) {
    std::fprintf(stderr, "afdd: %s\n", why.message.c_str());
    return code;
}

ExitCode print_checked(const ResolvedConfig& resolved) {
    std::fputs(describe_config(resolved).c_str(), stdout);
    const Config& config = resolved.config;
    if (!config.http.empty() && config.join.empty()) {
        const Result<> http = check_http(config);
        if (!http.ok()) return refuse(ExitCode::kUsage, http.error());
    }
    const Result<> cluster = check_cluster_files(config);
    if (!cluster.ok()) return refuse(ExitCode::kUsage, cluster.error());
    const Result<> cache = check_named_cache(config);
    if (!cache.ok()) return refuse(ExitCode::kUsage, cache.error());
    // Without a model there is nothing to look at; starting says what to give.
    if (config.model.empty()) return ExitCode::kOk;
    const Result<CheckedModel> model = check_model(config.model, config.kv_dtype, config.int4_rows);
    if (!model.ok()) return refuse(ExitCode::kModel, model.error());
    std::fputs(model.value().text.c_str(), stdout);
    const model::ModelConfig& checkpoint = model.value().config;
    const TokenLimit limit(checkpoint.context_length,
                           checkpoint.attention->window(),
                           whole_kv_tokens(config.kv_tokens));
    if (const auto why = shortened_context(checkpoint.context_length, limit); !why.empty()) {
        std::printf("# context: %s\n", why.c_str());
    }
    ExitCode exit_code = ExitCode::kOk;
    const Result<InstanceNeeds> needs = needs_of(config, exit_code, Weights::kIfThere);
    if (!needs.ok()) return refuse(exit_code, needs.error());
    if (!needs.value().memory) return ExitCode::kOk;
    // Whether there is room now is for the doctor to say.
    const InstanceMemory& memory = *needs.value().memory;
    const std::string lacking = memory.cache_room.warning(choose_weight_cache(config).directory);
    if (!lacking.empty()) std::fprintf(stderr, "afdd: %s\n", lacking.c_str());
    std::printf("# memory: on this host %s, experts of the weight cache %llu MiB\n",
                memory.private_text().c_str(),
                static_cast<unsigned long long>(memory.mapped_expert_bytes >> 20));
    if (memory.attention_bytes == 0 && memory.num_attention_workers > 0) {
        std::printf(
            "# memory: besides, the weights of attention workers, whose size only the tensors say "
            "(docs/models.md has that of released models)\n");
    }
    return ExitCode::kOk;
}

// Beside what the doctor finds itself: it knows nothing of who may ask.
Finding examine_http(const Config& config) {
    Finding finding{"http", Finding::Level::kOk, "off", ""};
    if (config.http.empty() || !config.join.empty()) return finding;
    const Result<> http = check_http(config);
    if (http.ok()) {
        finding.text = config.http;
        return finding;
    }
    return {"http",
            Finding::Level::kFailed,
            http.error().message,
            "afdd starts once it is right",
            ExitCode::kUsage};
}

ExitCode print_doctor(const Config& config, bool as_json) {
    ExitCode exit_code = ExitCode::kOk;
    const Result<InstanceNeeds> needs = needs_of(config, exit_code);
    if (!needs.ok()) return refuse(exit_code, needs.error());
    std::vector<Finding> findings = examine(read_machine(), needs.value());
    for (Finding& finding : examine_surroundings(
             config, network_devices(), std::time(nullptr), needs.value().cache_room())) {
        findings.push_back(std::move(finding));
    }
    findings.push_back(examine_http(config));
    std::fputs((as_json ? findings_json(findings) : findings_text(findings)).c_str(), stdout);
    return exit_code_of(findings);
}

// The exit code of a run that only prints.
int end_output(int exit_code) {
    return end_standard_output("afdd", exit_code);
}

// How many files this process has to open at least. It is better to say so here than to let one
// worker after another find out. For a host that joins, the number of its workers is not known yet.
size_t num_files_needed(const Config& config) {
    if (!config.join.empty()) return kDescriptorsMin;
    return num_files_min(config.num_attention_workers() + config.num_ffn_workers());
}

// The socket to the afdd whose place this one is to take; none: nobody's. It is not for the
// processes that this one starts. REQUIRES: no other thread runs.
Result<UniqueFd> take_handover_socket() {
    const char* variable = std::getenv(Successor::kVariable);
    if (variable == nullptr) return UniqueFd();
    const std::string text = variable;
    ::unsetenv(Successor::kVariable);
    const auto number = whole_number(text);
    const int fd = number && *number <= INT_MAX ? static_cast<int>(*number) : -1;
    int type = 0;
    socklen_t size = sizeof(type);
    // What is no socket is somebody else's, and stays open.
    if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 ||
        ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) {
        return invalid_argument(
            "{} = '{}': must be the number of a descriptor, that of a stream socket; only an afdd "
            "sets it, for the one that takes its place",
            with(Successor::kVariable, text));
    }
    return UniqueFd(fd);
}

// The afdd in whose place this one was to be, if there is one, tells who asked for it.
int end_unmet(UniqueFd handover_socket, const Error& why) {
    if (handover_socket.valid()) Predecessor::refuse(std::move(handover_socket), why.message);
    return static_cast<int>(ExitCode::kUsage);
}

// An upgrade waits for workers that the new process starts, and that report to it.
Result<> check_can_take_over(const Config& config) {
    if (!config.spawn) {
        return failed_precondition(
            "spawn = false: an upgrade starts its workers itself; stop afdd and start it anew");
    }
    if (config.has_hosts() || !config.join.empty()) {
        return unimplemented(
            "{}: an upgrade can only be to workers of this host yet; stop afdd and start it anew",
            with(config.join.empty() ? "attention_hosts, ffn_hosts" : "join"));
    }
    return {};
}

// The afdd in whose place this one is to be; it knows if it cannot be.
Result<std::unique_ptr<Predecessor>> meet_predecessor(UniqueFd handover_socket,
                                                      const Config& config) {
    AFD_ASSIGN(std::unique_ptr<Predecessor> predecessor,
               Predecessor::meet(std::move(handover_socket)));
    if (const Result<> can = check_can_take_over(config); !can.ok()) {
        predecessor->say_failed(can.error().message);
        return can.error();
    }
    return predecessor;
}

// With what the job says, where afdd is a task of one.
Result<ResolvedConfig> resolve(CommandLine& line) {
    if (line.slurm) {
        AFD_ASSIGN(const SlurmJob job, read_slurm_job(line.sources.environment, ask_scontrol));
        line.sources.slurm = job.options();
    }
    return resolve_config(line.sources);
}

int run(int argc, char** argv) {
    int exit_code = 0;
    ServiceNotifier notifier = ServiceNotifier::from_environment();
    Result<UniqueFd> taken_socket = take_handover_socket();
    if (!taken_socket.ok()) {
        return static_cast<int>(refuse(ExitCode::kUsage, taken_socket.error()));
    }
    UniqueFd handover_socket = std::move(taken_socket).value();
    std::optional<CommandLine> line = parse_command_line(argc, argv, ::environ, &exit_code);
    if (!line) return end_output(exit_code);
    const Result<ResolvedConfig> resolved = resolve(*line);
    if (!resolved.ok()) {
        std::fprintf(stderr, "afdd: %s\n", resolved.error().message.c_str());
        return end_unmet(std::move(handover_socket), resolved.error());
    }
    const Config& config = resolved.value().config;
    std::vector<std::string> remarks = misspelt_variables(line->sources.environment);
    std::ranges::copy(unused_options(resolved.value()), std::back_inserter(remarks));
    if (!line->doctor) {
        std::ranges::copy(start_remarks(config, allowed_cpus(), cpu_quota()),
                          std::back_inserter(remarks));
    }
    if (line->check_config || line->doctor) {
        for (const std::string& one : remarks) std::fprintf(stderr, "afdd: %s\n", one.c_str());
    }
    if (line->check_config) {
        return end_output(static_cast<int>(print_checked(resolved.value())));
    }
    if (line->doctor) return end_output(static_cast<int>(print_doctor(config, line->json)));
    set_up_logging("afdd", config.log_level, config.log_format);
    show_pid_in_log(handover_socket.valid());
    const std::string& file = resolved.value().config_file;
    // A file in the current directory counts, which who starts afdd elsewhere would not expect.
    const char* none =
        line->sources.demo ? "none (--demo reads one only if it is named)" : "none was found";
    log::info("configuration file: {}", file.empty() ? none : file);
    for (const std::string& one : remarks) log::warn("{}", one);
    if (const auto done = require_descriptors(num_files_needed(config)); !done.ok()) {
        log::error("{}", done.error().message);
        return end_unmet(std::move(handover_socket), done.error());
    }
    std::unique_ptr<Predecessor> predecessor;
    if (handover_socket.valid()) {
        Result<std::unique_ptr<Predecessor>> met =
            meet_predecessor(std::move(handover_socket), config);
        if (!met.ok()) {
            log::error("cannot take the place of another afdd: {}", met.error().message);
            return static_cast<int>(ExitCode::kUsage);
        }
        predecessor = std::move(met).value();
    }
    const auto reload = [&line]() -> Result<Config> {
        AFD_ASSIGN(const ResolvedConfig again, resolve_config(line->sources));
        return again.config;
    };
    if (!config.join.empty()) {
        JoinedHost host(config, worker_directory(), std::move(notifier), reload);
        return static_cast<int>(host.run());
    }
    Afdd::Surroundings surroundings;
    surroundings.command_line = {argv, argv + argc};
    surroundings.worker_directory = worker_directory();
    surroundings.notifier = std::move(notifier);
    surroundings.reload = reload;
    Afdd afdd(config, std::move(surroundings), std::move(predecessor));
    return static_cast<int>(afdd.run());
}

}  // namespace

}  // namespace afd::daemon

int main(int argc, char** argv) {
    afd::open_standard_descriptors();
    return afd::daemon::run(argc, argv);
}
