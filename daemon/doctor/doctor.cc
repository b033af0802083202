// SPDX-License-Identifier: Apache-2.0
#include "daemon/doctor/doctor.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "daemon/config/cpu_plan.h"
#include "daemon/config/instance_geometry.h"
#include "daemon/doctor/model_check.h"
#include "daemon/instance/configured_welcome.h"
#include "daemon/instance/expert_plan.h"
#include "daemon/instance/file_budget.h"
#include "daemon/instance/window_memory.h"
#include "daemon/placement/host_plan.h"
#include "model/family/model_files.h"
#include "model/tokenizer/tokenizer.h"
#include "ops/format/numeric_class.h"

namespace afd::daemon {
namespace {

using Level = Finding::Level;

constexpr uint64_t kMiB = uint64_t{1} << 20;
// A worker reads the clock some dozen times a round, and a round can be as short as 50 us.
constexpr double kSlowClockNs = 200;

std::string mib(uint64_t bytes) {
    return fmt::format("{} MiB", bytes / kMiB);
}

std::string available_text(uint64_t bytes) {
    return (bytes == kUnlimited ? "an unknown amount" : mib(bytes)) + " available";
}

std::string limit_text(uint64_t limit) {
    return limit == kUnlimited ? "unlimited" : std::to_string(limit);
}

Finding examine_cpu(const MachineFacts& facts, const InstanceNeeds& needs) {
    std::string sets;
    for (const char* flag :
         {"avx2", "fma", "f16c", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "amx_bf16"}) {
        if (facts.cpu_flags.contains(flag)) sets += std::string(sets.empty() ? "" : ", ") + flag;
    }
    Finding finding{"cpu",
                    Level::kOk,
                    fmt::format("{}; has {}; numeric class {}",
                                facts.cpu_model.empty() ? "unknown model" : facts.cpu_model,
                                sets.empty() ? "none of the sets that kernels use" : sets,
                                needs.numeric_class),
                    ""};
    if (needs.numeric_class.starts_with("portable")) {
        finding.level = Level::kWarning;
        finding.remedy =
            "the portable kernels are many times slower: use a processor with AVX2, "
            "FMA and F16C, or let a virtual machine have its host's (cpu: host)";
    } else if (needs.is_emulated) {
        finding.level = Level::kWarning;
        finding.remedy =
            "this processor lacks the instructions of this class; others give the same results, "
            "but take several times as long: leave numeric_class at auto, unless other hosts or "
            "earlier results need it";
    }
    return finding;
}

Finding examine_cores(const MachineFacts& facts, const InstanceNeeds& needs) {
    const std::string threads = needs.is_share_unknown
                                    ? "data threads not known: the afdd that leads says which "
                                      "workers this host gets"
                                    : fmt::format("{} data threads", needs.num_threads);
    Finding finding{
        "cores", Level::kOk, fmt::format("{} allowed, {}", facts.num_cores, threads), ""};
    if (facts.cpu_quota > 0) finding.text += fmt::format(", quota {:.1f}", facts.cpu_quota);
    if (needs.is_crowded) {
        finding.level = Level::kWarning;
        finding.remedy =
            "threads take turns on cores, and every hop waits for one: fewer "
            "attention_workers, ffn_workers or threads, or other lists in pin; compare topology = "
            "colocated";
    } else if (facts.cpu_quota > 0 && facts.cpu_quota < needs.num_threads) {
        finding.level = Level::kWarning;
        finding.remedy =
            "the cgroup stops all threads when its quota is used up, for up to a "
            "tenth of a second: raise cpu.max to the number of data threads";
    }
    return finding;
}

Finding examine_shm(const MachineFacts& facts, const InstanceNeeds& needs) {
    Finding finding{"shm", Level::kOk, "memfd", ""};
    if (!facts.has_memfd) {
        finding.level = Level::kFailed;
        finding.text = "no memfd_create()";
        finding.remedy = "windows are memory files: allow the call in the sandbox's system calls";
        return finding;
    }
    if (!needs.memory) {
        finding.text += fmt::format(
            "; {}; what is needed depends on {}",
            available_text(facts.memory_bytes),
            needs.is_share_unknown ? "the workers that this host gets" : "the model: give --model");
        return finding;
    }
    const uint64_t segment_bytes = needs.memory->segment_bytes;
    const uint64_t window_bytes = needs.memory->window_bytes;
    const std::string windows = window_bytes > 0 ? " and windows " + mib(window_bytes) : "";
    finding.text += fmt::format("; segments take {}{}, of {}",
                                mib(segment_bytes),
                                windows,
                                available_text(facts.memory_bytes));
    if (needs.two_phase_bytes > 0) {
        finding.text += ", long prompts up to " + mib(needs.two_phase_bytes) + " more";
    }
    const uint64_t start_bytes = segment_bytes + window_bytes;
    if (facts.memory_bytes < start_bytes) {
        finding.level = Level::kFailed;
        finding.remedy =
            "fewer or smaller micro_batches, or more memory (MemoryMax of a service "
            "counts it, too)";
        if (window_bytes > 0) finding.remedy = "fewer workers, on more hosts; " + finding.remedy;
    } else if (facts.memory_bytes < start_bytes + needs.two_phase_bytes) {
        finding.level = Level::kWarning;
        finding.remedy =
            "set two_phase_memory_max to less: a long prompt for which there is no "
            "room goes through the windows, slower";
    }
    return finding;
}

Finding examine_memory(const MachineFacts& facts, const InstanceNeeds& needs) {
    Finding finding{"memory", Level::kOk, available_text(facts.memory_bytes), ""};
    if (!needs.memory) return finding;
    const uint64_t private_bytes = needs.memory->private_bytes();
    const uint64_t mapped_bytes = needs.memory->mapped_expert_bytes;
    finding.text +=
        fmt::format("; workers need {} ({})", mib(private_bytes), needs.memory->private_text());
    if (mapped_bytes > 0) {
        finding.text += fmt::format(" and map {} of experts", mib(mapped_bytes));
    }
    if (facts.memory_bytes < private_bytes) {
        finding.level = Level::kFailed;
        finding.remedy = needs.memory->remedy();
    } else if (facts.memory_bytes - private_bytes < mapped_bytes) {
        finding.level = Level::kWarning;
        finding.remedy =
            "experts that do not fit beside that are read from disk again and again: " +
            needs.memory->remedy();
    }
    return finding;
}

Finding examine_files(const MachineFacts& facts, const InstanceNeeds& needs) {
    Finding finding{"nofile", Level::kOk, limit_text(facts.nofile) + " open files", ""};
    const uint64_t num_at_start = num_files_at_start(needs.num_workers);
    const uint64_t num_free = facts.nofile > num_at_start ? facts.nofile - num_at_start : 0;
    const uint64_t num_possible = num_connections_within(num_free, needs.num_workers);
    const uint64_t num_min =
        kStandardFiles +
        (needs.is_share_unknown ? kDescriptorsMin : num_files_min(needs.num_workers));
    if (facts.nofile < num_min) {
        finding.level = Level::kFailed;
        finding.exit_code = ExitCode::kUsage;
        const std::string workers =
            needs.is_share_unknown ? " needs"
                                   : fmt::format(" and its {} workers need", needs.num_workers);
        finding.remedy = fmt::format(
            "afdd{1} {0}: ulimit -n {0}, or LimitNOFILE={0} in the unit", num_min, workers);
    } else if (num_possible < needs.num_connections) {
        finding.level = Level::kWarning;
        finding.remedy = fmt::format(
            "{0} connections instead of connections_max = {1} can be served: ulimit -n {2}, or "
            "LimitNOFILE={2} in the unit",
            num_possible,
            needs.num_connections,
            num_files_for(needs.num_connections, needs.num_workers));
    }
    return finding;
}

Finding examine_limits(const MachineFacts& facts) {
    Finding finding{
        "limits",
        Level::kOk,
        fmt::format(
            "memlock {}, as {}", limit_text(facts.memlock), limit_text(facts.address_space)),
        ""};
    if (facts.address_space != kUnlimited) {
        finding.level = Level::kWarning;
        finding.remedy = "weights and windows are mapped whole: ulimit -v unlimited";
    }
    return finding;
}

Finding examine_huge_pages(const MachineFacts& facts) {
    const bool is_known = !facts.huge_pages.empty();
    Finding finding{"hugepages",
                    Level::kOk,
                    is_known ? "transparent ones: " + facts.huge_pages : "not told by the kernel",
                    ""};
    if (facts.huge_pages == "never") {
        finding.level = Level::kWarning;
        finding.remedy =
            "reading weights through small pages costs about a tenth of the time: "
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
    }
    return finding;
}

Finding examine_clock(const MachineFacts& facts) {
    Finding finding{"clock",
                    Level::kOk,
                    fmt::format("{}, {:.0f} ns a reading",
                                facts.clock_source.empty() ? "unknown source" : facts.clock_source,
                                facts.clock_ns),
                    ""};
    if (facts.clock_ns > kSlowClockNs) {
        finding.level = Level::kWarning;
        finding.remedy =
            facts.clock_source == "tsc"
                ? "reading the time is slow though its source is the fastest: the machine is busy, "
                  "or its hypervisor intercepts the reading"
                : "reading the time is a system call here: choose tsc (or kvm-clock) in "
                  "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    }
    return finding;
}

Result<schedule::WindowLayout> layout_of(const Config& config,
                                         const CpuPlan& cpus,
                                         const model::ModelConfig& model) {
    AFD_ASSIGN(const schedule::RowDtype dispatch_dtype,
               choose_dispatch_dtype(config.dispatch_dtype, model));
    AFD_ASSIGN(const schedule::Geometry geometry,
               make_geometry(model, instance_geometry(config, cpus, dispatch_dtype)));
    return schedule::WindowLayout::compute(geometry);
}

struct KnownModel {
    model::ModelConfig config;
    std::optional<model::ModelFiles> files;  // Nothing: the weights are not there.
};

Result<KnownModel> look_at_model(const Config& config, Weights weights) {
    KnownModel known;
    if (weights == Weights::kIfThere && !has_weights(config.model)) {
        AFD_ASSIGN(known.config, model::load_model_config(config.model, config.kv_dtype));
    } else {
        AFD_ASSIGN(known.files, model::ModelFiles::open(config.model, config.kv_dtype));
        known.config = known.files->config();
    }
    // An afdd that leads needs it, and one that joins, too: its workers know the tokens' texts.
    if (weights == Weights::kNeeded) AFD_TRY(model::Tokenizer::load(config.model));
    known.config.residual = config.residual;
    return known;
}

Result<InstanceMemory> memory_of(const Config& config,
                                 const CpuPlan& cpus,
                                 const KnownModel& known,
                                 ops::NumericClass numeric_class) {
    std::optional<schedule::ExpertPlacement> placement;
    if (config.num_ffn_workers() > 0) {
        AFD_TRY(check_scheduler(config));
        AFD_ASSIGN(placement, plan_experts(config, known.config));
    }
    AFD_ASSIGN(const schedule::WindowLayout layout, layout_of(config, cpus, known.config));
    AFD_TRY(check_window_messages(config, layout));
    return memory_here(config,
                       {.model = known.config,
                        .files = known.files ? &*known.files : nullptr,
                        .numeric_class = numeric_class,
                        .placement = placement ? &*placement : nullptr,
                        .layout = layout});
}

// Counts the workers that run here. Other hosts plan for their own.
uint32_t threads_here(const HostPlan& hosts, const CpuPlan& cpus) {
    uint32_t num_threads = 0;
    const auto add = [&](control::Role role, const std::vector<WorkerCpus>& workers) {
        for (uint32_t index = 0; index < workers.size(); ++index) {
            if (!hosts.host_of(role, index).empty()) continue;
            const uint32_t own = workers[index].num_threads;
            num_threads = cpus.in_turns ? std::max(num_threads, own) : num_threads + own;
        }
    };
    add(control::ATTENTION, cpus.attention);
    add(control::FFN, cpus.ffn);
    return num_threads;
}

}  // namespace

Result<InstanceNeeds> needs_of(const Config& config, ExitCode& exit_code, Weights weights) {
    exit_code = ExitCode::kUsage;
    InstanceNeeds needs;
    const auto wanted = ops::parse_numeric_class(config.numeric_class);
    const ops::NumericClass numeric_class = wanted.value_or(ops::best_numeric_class());
    needs.numeric_class = std::string(ops::name_of(numeric_class));
    if (wanted && !ops::supported(*wanted)) {
        return Error{
            Code::kInvalidArgument,
            fmt::format("numeric_class = {}: this processor cannot run it", config.numeric_class)};
    }
    needs.is_emulated = !ops::is_native(numeric_class);
    needs.is_share_unknown = !config.join.empty();
    CpuPlan cpus;
    if (!needs.is_share_unknown) {
        const HostPlan hosts(config);
        AFD_ASSIGN(cpus, hosts.plan_local_cpus(config, allowed_cpus(), cpu_quota()));
        needs.num_threads = threads_here(hosts, cpus);
        needs.is_crowded = cpus.oversubscribed && !cpus.in_turns;
    }
    const uint64_t num_workers = config.num_attention_workers() + config.num_ffn_workers();
    needs.num_workers = static_cast<uint32_t>(num_workers);
    if (!needs.is_share_unknown) needs.num_connections = config.connections_max;
    if (config.model.empty()) return needs;
    exit_code = ExitCode::kModel;
    AFD_ASSIGN(KnownModel known, look_at_model(config, weights));
    exit_code = ExitCode::kUsage;
    // For a host that joins, the afdd that leads decides what the experts are like.
    if (needs.is_share_unknown) return needs;
    AFD_TRY(model::set_int4_rows(config.int4_rows, known.config.quantisation));
    AFD_ASSIGN(needs.memory, memory_of(config, cpus, known, numeric_class));
    if (config.two_phase()) needs.two_phase_bytes = config.two_phase_memory_max;
    return needs;
}

std::vector<Finding> examine(const MachineFacts& facts, const InstanceNeeds& needs) {
    return {examine_cpu(facts, needs),
            examine_cores(facts, needs),
            examine_shm(facts, needs),
            examine_memory(facts, needs),
            examine_files(facts, needs),
            examine_limits(facts),
            examine_huge_pages(facts),
            examine_clock(facts)};
}

}  // namespace afd::daemon
