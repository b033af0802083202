// SPDX-License-Identifier: Apache-2.0
#pragma once

// The commands of afdctl. Each takes its parsed options and returns an exit code (exit_code.h);
// data goes to standard output, messages to standard error.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "clients/afd_client.h"
#include "clients/command_line.h"
#include "proto/status.h"

namespace afd::client {

// Options that every command takes.
struct CommonOptions {
    EndpointFlags endpoint;
    bool json = false;
};

struct GenerateOptions {
    std::string prompt;                // "-": read from standard input.
    std::vector<uint32_t> prompt_ids;  // Instead of `prompt`.
    uint32_t max_tokens = 128;
    Generate wish;  // What generate_flags.h sets.
    bool token_ids = false;
    bool logprobs = false;
    bool prompt_logprobs = false;
    bool ignore_eos = false;
    bool resumable = false;
    std::optional<double> keep_s;  // With `resumable`; nothing: kKeepS.
    std::string resume_id;         // Instead of a prompt.
    // Of it: a token each, and in front of them those of prompt logprobs.
    uint64_t received_chunks = 0;
    double timeout_s = 600;
};

inline constexpr double kKeepS = 60;

struct StatusOptions {
    bool watch = false;
    double timeout_s = 5;
};

struct TopOptions {
    bool once = false;
    double timeout_s = 5;
};

struct MetricsOptions {
    bool list = false;
    double timeout_s = 5;
};

struct ContextOptions {
    std::string worker;                    // "attention0", "ffn1".
    std::optional<uint32_t> set_run_flag;  // 0 or 1.
    bool lanes = false;
    bool watch = false;
    double timeout_s = 5;
};

struct WorkerOptions {
    std::vector<std::string> workers;  // As ContextOptions names one.
    bool all = false;                  // Instead of them.
    double timeout_s = 60;             // For each.
};

struct ResizeOptions {
    std::optional<uint32_t> attention;  // Nothing: as many as now.
    std::optional<uint32_t> ffn;
    bool stop_first = false;
    double timeout_s = 600;
};

struct UpgradeOptions {
    double timeout_s = 600;
};

struct TraceOptions {
    double seconds = 1;
    std::string output;
};

struct DoctorOptions {
    std::vector<std::string> arguments;  // Of the afdd that is to be started.
};

struct ClusterOptions {
    std::string directory;           // Of the certificates.
    std::vector<std::string> hosts;  // Besides the leader.
    int64_t days = 825;              // That a new certificate of a host is valid.
};

struct LifecycleOptions {
    bool wait = true;  // Of stop: until afdd has exited.
    double timeout_s = 600;
};

int run_generate(const CommonOptions& common, const GenerateOptions& options);
int run_status(const CommonOptions& common, const StatusOptions& options);
int run_top(const CommonOptions& common, const TopOptions& options);
int run_doctor(const CommonOptions& common, const DoctorOptions& options);
int run_metrics(const CommonOptions& common, const MetricsOptions& options);
int run_cluster_init(const CommonOptions& common, const ClusterOptions& options);
int run_context(const CommonOptions& common, const ContextOptions& options);
int run_drain_worker(const CommonOptions& common, const WorkerOptions& options);
int run_restart_worker(const CommonOptions& common, const WorkerOptions& options);
int run_resize(const CommonOptions& common, const ResizeOptions& options);
int run_upgrade(const CommonOptions& common, const UpgradeOptions& options);
int run_trace(const CommonOptions& common, const TraceOptions& options);
int run_drain(const CommonOptions& common, const LifecycleOptions& options);
int run_stop(const CommonOptions& common, const LifecycleOptions& options);

// Reports `error` of a command: as text on standard error and, with --json, as an object on
// standard output. Returns the exit code that `error` means; `is_reached`: a connection was made.
int report_failure(const CommonOptions& common, const afd::Error& error, bool is_reached);

// The same of a call of `client` that ends at --timeout.
int report_call_failure(const CommonOptions& common, const Client& client, afd::Error error);

// The client for `common`, or the exit code of the reported failure.
std::optional<Client> connect_or_report(const CommonOptions& common, int& exit_code);

// The worker that "attention0" or "ffn1", also "ffn 1", names. Errors: kInvalidArgument.
Result<GetContext> parse_worker(const std::string& worker);

// Waits for the next tick of --watch; false if Ctrl-C came, or nothing can be printed any more.
bool wait_interval(const Cancellation& cancellation);

// A Cancellation that Ctrl-C requests.
const Cancellation& interrupt_cancellation();

inline std::chrono::milliseconds to_milliseconds(double seconds) {
    return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

}  // namespace afd::client
