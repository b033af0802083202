// SPDX-License-Identifier: Apache-2.0
#include "daemon/doctor/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "daemon/config/cpu_plan.h"
#include "daemon/instance/file_budget.h"
#include "daemon/instance/instance_memory.h"
#include "daemon/instance/window_memory.h"
#include "schedule/ucx/private_memory.h"
#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

using Level = Finding::Level;
using ::testing::HasSubstr;

// A machine that lacks nothing, and an instance that fits.
MachineFacts good_machine() {
    MachineFacts facts;
    facts.cpu_model = "Example 9000";
    facts.cpu_flags = {"avx2", "fma", "avx512f", "avx512_bf16"};
    facts.num_cores = 4;
    facts.has_memfd = true;
    facts.memory_bytes = uint64_t{16} << 30;
    facts.nofile = 4096;
    facts.memlock = 65536;
    facts.address_space = kUnlimited;
    facts.huge_pages = "madvise";
    facts.clock_source = "tsc";
    facts.clock_ns = 21;
    return facts;
}

InstanceNeeds small_needs() {
    InstanceNeeds needs;
    needs.numeric_class = "avx512-bf16";
    needs.num_threads = 4;
    needs.num_workers = 3;
    needs.num_connections = 512;
    needs.memory = InstanceMemory{.num_attention_workers = 2,
                                  .attention_bytes = uint64_t{2} << 30,
                                  .kv_bytes = uint64_t{1} << 30,
                                  .segment_bytes = uint64_t{18} << 20,
                                  .mapped_expert_bytes = uint64_t{6} << 30};
    needs.two_phase_bytes = uint64_t{100} << 20;
    return needs;
}

Finding finding_of(const std::vector<Finding>& findings, const std::string& subject) {
    for (const Finding& finding : findings) {
        if (finding.subject == subject) return finding;
    }
    ADD_FAILURE() << "no finding of " << subject;
    return {};
}

TEST(Doctor, FindsNothingWhereNothingIsWrong) {
    const std::vector<Finding> findings = examine(good_machine(), small_needs());
    ASSERT_EQ(findings.size(), 8u);
    for (const Finding& finding : findings) {
        EXPECT_EQ(finding.level, Level::kOk) << finding.subject << ": " << finding.text;
        EXPECT_EQ(finding.remedy, "") << finding.subject;
    }
    EXPECT_THAT(finding_of(findings, "cpu").text,
                HasSubstr("Example 9000; has avx2, fma, avx512f, avx512_bf16; numeric class "
                          "avx512-bf16"));
}

// Goal: each lack is found, alone, with its values and a remedy. Oracle: one fact changed at a
// time.
TEST(Doctor, SaysWhatIsWrongAndHowToMendIt) {
    struct Case {
        const char* subject;
        Level level;
        void (*spoil)(MachineFacts&, InstanceNeeds&);
        const char* text;
        const char* remedy;
    };
    const Case cases[] = {
        {"cpu",
         Level::kWarning,
         [](MachineFacts& facts, InstanceNeeds& needs) {
             facts.cpu_flags.clear();
             needs.numeric_class = "portable";
         },
         "has none of the sets that kernels use",
         "use a processor with AVX2, FMA and F16C"},
        {"cores",
         Level::kWarning,
         [](MachineFacts&, InstanceNeeds& needs) {
             needs.num_threads = 5;
             needs.is_crowded = true;
         },
         "4 allowed, 5 data threads",
         "fewer attention_workers"},
        {"cores",
         Level::kWarning,
         [](MachineFacts& facts, InstanceNeeds&) { facts.cpu_quota = 1.5; },
         "quota 1.5",
         "raise cpu.max"},
        {"shm",
         Level::kFailed,
         [](MachineFacts& facts, InstanceNeeds&) { facts.has_memfd = false; },
         "no memfd_create()",
         "allow the call"},
        {"shm",
         Level::kFailed,
         [](MachineFacts&, InstanceNeeds& needs) {
             needs.memory->segment_bytes = uint64_t{17} << 30;
         },
         "segments take 17408 MiB, of 16384 MiB available",
         "fewer or smaller micro_batches"},
        {"shm",
         Level::kFailed,
         [](MachineFacts&, InstanceNeeds& needs) {
             needs.memory->window_bytes = uint64_t{17} << 30;
         },
         "segments take 18 MiB and windows 17408 MiB, of 16384 MiB available",
         "fewer workers, on more hosts; fewer or smaller micro_batches"},
        {"shm",
         Level::kWarning,
         [](MachineFacts&, InstanceNeeds& needs) { needs.two_phase_bytes = uint64_t{20} << 30; },
         "long prompts up to 20480 MiB more",
         "two_phase_memory_max"},
        {"memory",
         Level::kWarning,
         [](MachineFacts& facts, InstanceNeeds&) { facts.memory_bytes = uint64_t{4} << 30; },
         "4096 MiB available; workers need 3090 MiB (weights of 2 attention workers 2048 MiB, KV "
         "caches of 2 attention workers 1024 MiB, segments 18 MiB) and map 6144 MiB of experts",
         "read from disk again and again: lower attention_workers or kv_tokens"},
        {"memory",
         Level::kWarning,
         [](MachineFacts&, InstanceNeeds& needs) { needs.memory->kv_bytes = uint64_t{11} << 30; },
         "KV caches of 2 attention workers 11264 MiB",
         "afd-quantize"},
        {"memory",
         Level::kFailed,
         [](MachineFacts&, InstanceNeeds& needs) { needs.memory->kv_bytes = uint64_t{17} << 30; },
         "16384 MiB available; workers need 19474 MiB (",
         "lower attention_workers or kv_tokens"},
        {"memory",
         Level::kFailed,
         [](MachineFacts&, InstanceNeeds& needs) {
             needs.memory->attention_bytes = uint64_t{24 * 909} << 20;
         },
         "weights of 2 attention workers 21816 MiB",
         "lower attention_workers"},
        {"memory",
         Level::kFailed,
         [](MachineFacts&, InstanceNeeds& needs) {
             needs.memory->private_expert_bytes = uint64_t{14} << 30;
         },
         "experts without a weight cache 14336 MiB",
         "let workers share their experts (weight_cache)"},
        {"nofile",
         Level::kWarning,
         [](MachineFacts& facts, InstanceNeeds&) { facts.nofile = 256; },
         "256 open files",
         "69 connections instead of connections_max = 512 can be served: ulimit -n 699"},
        {"nofile",
         Level::kFailed,
         [](MachineFacts& facts, InstanceNeeds&) { facts.nofile = 20; },
         "20 open files",
         "need 63: ulimit -n 63"},
        {"cpu",
         Level::kWarning,
         [](MachineFacts&, InstanceNeeds& needs) {
             needs.numeric_class = "amx";
             needs.is_emulated = true;
         },
         "numeric class amx",
         "this processor lacks the instructions"},
        {"clock",
         Level::kWarning,
         [](MachineFacts& facts, InstanceNeeds&) {
             facts.clock_source = "tsc";
             facts.clock_ns = 400;
         },
         "tsc, 400 ns",
         "the machine is busy, or its hypervisor"},
        {"limits",
         Level::kWarning,
         [](MachineFacts& facts, InstanceNeeds&) { facts.address_space = 1 << 30; },
         "as 1073741824",
         "ulimit -v unlimited"},
        {"hugepages",
         Level::kWarning,
         [](MachineFacts& facts, InstanceNeeds&) { facts.huge_pages = "never"; },
         "transparent ones: never",
         "echo madvise"},
        {"clock",
         Level::kWarning,
         [](MachineFacts& facts, InstanceNeeds&) {
             facts.clock_source = "hpet";
             facts.clock_ns = 1100;
         },
         "hpet, 1100 ns a reading",
         "choose tsc"},
    };
    for (const Case& one : cases) {
        MachineFacts facts = good_machine();
        InstanceNeeds needs = small_needs();
        one.spoil(facts, needs);
        const std::vector<Finding> findings = examine(facts, needs);
        const Finding found = finding_of(findings, one.subject);
        EXPECT_EQ(found.level, one.level) << one.text;
        EXPECT_THAT(found.text, HasSubstr(one.text));
        EXPECT_THAT(found.remedy, HasSubstr(one.remedy));
        for (const Finding& finding : findings) {
            // What segments take is not there for the rest.
            const bool is_shm = std::string_view(one.subject) == "shm";
            if (finding.subject == one.subject || (is_shm && finding.subject == "memory")) continue;
            EXPECT_EQ(finding.level, Level::kOk) << finding.subject << " beside " << one.text;
        }
    }
}

// Without a model nobody knows the windows' size: that is said, and is no failure.
TEST(Doctor, NeedsNoModel) {
    InstanceNeeds needs = small_needs();
    needs.memory.reset();
    const Finding shm = finding_of(examine(good_machine(), needs), "shm");
    EXPECT_EQ(shm.level, Level::kOk);
    EXPECT_THAT(shm.text,
                HasSubstr(" MiB available; what is needed depends on the model: give --model"));
}

// Goal: what each process has for itself must be there, and what they share need not. Method: as
// much memory as either needs, and a byte less.
TEST(Doctor, JudgesMemoryByWhoCanGiveItBack) {
    const InstanceNeeds needs = small_needs();
    const uint64_t needed = needs.memory->private_bytes();
    const auto level_with = [&](uint64_t bytes) {
        MachineFacts facts = good_machine();
        facts.memory_bytes = bytes;
        return finding_of(examine(facts, needs), "memory").level;
    };
    EXPECT_EQ(level_with(needed - 1), Level::kFailed);
    EXPECT_EQ(level_with(needed), Level::kWarning);
    EXPECT_EQ(level_with(needed + needs.memory->mapped_expert_bytes - 1), Level::kWarning);
    EXPECT_EQ(level_with(needed + needs.memory->mapped_expert_bytes), Level::kOk);
    EXPECT_EQ(level_with(kUnlimited), Level::kOk);
}

// Goal: of an instance over several hosts only what runs here counts. Oracle: the sum over the
// workers of this host, by hand.
TEST(Doctor, CountsTheWorkersOfThisHost) {
    Config config;
    config.numeric_class = "auto";
    config.pin = "none";
    config.attention_workers = 2;
    config.ffn_workers = 3;
    config.attention_threads = 2;
    config.ffn_threads = 5;
    ExitCode exit_code = ExitCode::kOk;
    const Result<InstanceNeeds> all = needs_of(config, exit_code);
    ASSERT_TRUE(all.ok()) << all.error().message;
    EXPECT_EQ(all.value().num_threads, 2 * 2 + 3 * 5u);
    config.attention_hosts = "b";
    config.ffn_hosts = "local,b";
    const Result<InstanceNeeds> here = needs_of(config, exit_code);
    ASSERT_TRUE(here.ok()) << here.error().message;
    EXPECT_EQ(here.value().num_threads, 2 * 5u);
}

// Goal: lists that put two threads on a core are found, however many cores there are. Oracle: by
// hand, with the first core that this process may use.
TEST(Doctor, FindsListsThatShareACore) {
    const std::string core = std::to_string(allowed_cpus().front());
    Config config;
    config.numeric_class = "auto";
    config.attention_workers = 2;
    config.ffn_workers = 1;
    config.pin = core + ";" + core + ";" + core;
    ExitCode exit_code = ExitCode::kOk;
    const Result<InstanceNeeds> needs = needs_of(config, exit_code);
    ASSERT_TRUE(needs.ok()) << needs.error().message;
    EXPECT_EQ(needs.value().num_threads, 3u);
    EXPECT_TRUE(needs.value().is_crowded);
}

// Goal: windows that are no segments are counted, too: those of the workers of this host, each in
// its own memory. Oracle: as segments, the same windows take their part of what is counted here,
// and what is kept for peers comes on top; without workers here there are none.
TEST(Doctor, CountsTheWindowsOfWorkersThatTalkOverUcx) {
    Config config;
    config.transport = Transport::kUcx;
    config.attention_workers = 3;
    config.ffn_workers = 5;
    config.ucx_neighbours = Neighbours::kUcx;
    const auto layout = schedule::WindowLayout::compute({.num_sessions = 3,
                                                         .num_micro_batches = 2,
                                                         .micro_batch_size = 4,
                                                         .selected_expert_num = 3,
                                                         .num_experts = 8,
                                                         .attn_to_ffn_token_bytes = 1024,
                                                         .ffn_to_attn_token_bytes = 512,
                                                         .num_ffn_workers = 5})
                            .value();
    const uint64_t windows =
        3 * layout.attention_window.total_bytes + 5 * layout.ffn_window.total_bytes;
    // Each pair and micro-batch keeps 12 rows each way, with 16 bytes and, one way, an id: in whole
    // pages.
    constexpr uint64_t kPageBytes = 4096;
    const uint64_t kept = 3 * 5 * 2 *
                          (schedule::round_up(12 * (1024 + 16 + 4), kPageBytes) +
                           schedule::round_up(12 * (512 + 16), kPageBytes));
    const uint64_t bytes = window_bytes_on("", config, layout);
    EXPECT_GE(bytes, windows + kept);
    EXPECT_LE(bytes, windows + kept + 3 * 5 * 2048 + (3 + 5) * 3 * kPageBytes)
        << "words of two-phase rounds, in two places of each worker, and what its pages have left";
    config.ucx_neighbours = Neighbours::kMemory;
    EXPECT_GE(window_bytes_on("", config, layout), bytes + 3 * 5 * (uint64_t{1} << 20)) << "rings";
    config.attention_hosts = "b";
    config.ffn_hosts = "b";
    EXPECT_EQ(window_bytes_on("", config, layout), 0u);
    config.attention_hosts = config.ffn_hosts = "";
    config.transport = Transport::kSharedMemory;
    EXPECT_EQ(window_bytes_on("", config, layout), 0u);
}

// Goal: an instance whose windows do not fit is refused, with what to change, before its workers
// are killed for it one by one. Method: as many and as large micro-batches as may be.
TEST(Doctor, RefusesWindowsForWhichThereIsNoRoom) {
    Config config;
    config.transport = Transport::kUcx;
    config.attention_workers = 1024;
    config.ffn_workers = 64;
    const auto layout = schedule::WindowLayout::compute({.num_sessions = 1024,
                                                         .num_micro_batches = 2,
                                                         .micro_batch_size = 256,
                                                         .selected_expert_num = 9,
                                                         .num_experts = 257,
                                                         .attn_to_ffn_token_bytes = 14336,
                                                         .ffn_to_attn_token_bytes = 14336,
                                                         .num_ffn_workers = 64})
                            .value();
    const InstanceMemory memory{.window_bytes = window_bytes_on("", config, layout)};
    const Result<> room = check_room_for(memory);
    ASSERT_FALSE(room.ok()) << "a machine of terabytes?";
    EXPECT_EQ(room.error().code, Code::kResourceExhausted);
    EXPECT_THAT(room.error().message, HasSubstr("MiB of memory (windows "));
    EXPECT_THAT(room.error().message, HasSubstr("lower micro_batches or micro_batch_size, "));
    EXPECT_THAT(room.error().message, HasSubstr("or run workers on more hosts"));
}

// Goal: a micro-batch that no message holds is refused by its option; workers asserted on it.
// Method: the limit, and one token more. Oracle: 1 GiB.
TEST(Doctor, RefusesMicroBatchesThatNoMessageHolds) {
    Config config;
    config.transport = Transport::kUcx;
    config.attention_workers = config.ffn_workers = 1;
    const auto layout_of = [](uint32_t micro_batch_size) {
        return schedule::WindowLayout::compute({.num_sessions = 1,
                                                .num_micro_batches = 1,
                                                .micro_batch_size = micro_batch_size,
                                                .selected_expert_num = 1,
                                                .num_experts = 8,
                                                .attn_to_ffn_token_bytes = 32768,
                                                .ffn_to_attn_token_bytes = 512,
                                                .num_ffn_workers = 1})
            .value();
    };
    const uint32_t largest = (uint32_t{1} << 30) / (32768 + 16 + 4);
    EXPECT_TRUE(schedule::check_publication_bytes(layout_of(largest)).ok());
    const Result<> refused = check_window_messages(config, layout_of(largest + 1));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
    EXPECT_THAT(refused.error().message, HasSubstr("micro_batch_size = 32749: "));
    EXPECT_THAT(refused.error().message, HasSubstr("lower micro_batch_size"));
}

// Goal: who joins is told that its share is not known, instead of numbers that are another's.
TEST(Doctor, DoesNotKnowTheShareOfAHostThatJoins) {
    Config config;
    config.numeric_class = "auto";
    config.pin = "0;1";  // Of as many workers as it may get, and not of those of the leader.
    config.attention_workers = 8;
    config.ffn_workers = 8;
    config.join = "node1:7000";
    ExitCode exit_code = ExitCode::kOk;
    const Result<InstanceNeeds> needs = needs_of(config, exit_code);
    ASSERT_TRUE(needs.ok()) << needs.error().message;
    const std::vector<Finding> findings = examine(good_machine(), needs.value());
    const Finding cores = finding_of(findings, "cores");
    EXPECT_EQ(cores.level, Level::kOk);
    EXPECT_EQ(cores.text,
              "4 allowed, data threads not known: the afdd that leads says which workers this host "
              "gets");
    EXPECT_THAT(finding_of(findings, "shm").text,
                HasSubstr("what is needed depends on the workers that this host gets"));
}

// The exit code is that of an afdd: who looks at it can tell whom to ask.
TEST(Doctor, EndsAsAnAfddWould) {
    Config config;
    config.numeric_class = "auto";
    config.pin = "none";
    config.attention_workers = 1;
    config.ffn_workers = 1;
    config.model = "/no/model";
    ExitCode exit_code = ExitCode::kOk;
    const Result<InstanceNeeds> no_model = needs_of(config, exit_code);
    ASSERT_FALSE(no_model.ok());
    EXPECT_EQ(exit_code, ExitCode::kModel);
    EXPECT_THAT(no_model.error().message, HasSubstr("/no/model"));
    config.pin = "0;x";
    const Result<InstanceNeeds> no_cores = needs_of(config, exit_code);
    ASSERT_FALSE(no_cores.ok());
    EXPECT_EQ(exit_code, ExitCode::kUsage);
    EXPECT_THAT(no_cores.error().message, HasSubstr("'x' is not a list of cores"));
}

// Goal: a model without its tokenizer is none, also for a host that joins: either afdd ends so.
// Method: a copy of the demo model, then without the file, then with half of it. Oracle: the exit
// code, and the file's name.
TEST(Doctor, AModelNeedsItsTokenizer) {
    const test::TemporaryDirectory directory;
    Config config;
    config.numeric_class = "auto";
    config.pin = "none";
    config.attention_workers = config.ffn_workers = 1;
    config.model = directory.path("model");
    config.join = "node1:7000";
    std::filesystem::copy(AFD_DEMO_MODEL, config.model);
    ExitCode exit_code = ExitCode::kOk;
    const Result<InstanceNeeds> whole = needs_of(config, exit_code);
    ASSERT_TRUE(whole.ok()) << whole.error().message;
    const std::string file = config.model + "/tokenizer.json";
    const auto expect_refused = [&] {
        for (const char* join : {"", "node1:7000"}) {
            config.join = join;
            const Result<InstanceNeeds> refused = needs_of(config, exit_code);
            ASSERT_FALSE(refused.ok());
            EXPECT_EQ(exit_code, ExitCode::kModel);
            EXPECT_THAT(refused.error().message, HasSubstr("tokenizer.json"));
        }
    };
    std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
    expect_refused();
    std::filesystem::remove(file);
    expect_refused();
}

// Goal: the doctor and the afdd that serves agree on how many connections there can be. Oracle: the
// sum of what each reckons with, at the limit and one file below.
TEST(Doctor, WarnsOfFewConnectionsWhereAfddWould) {
    const InstanceNeeds needs = small_needs();
    const size_t num_files = num_files_for(needs.num_connections, needs.num_workers);
    for (const uint64_t nofile : {num_files, num_files - 1}) {
        MachineFacts facts = good_machine();
        facts.nofile = nofile;
        const size_t num_free = nofile - num_files_at_start(needs.num_workers);
        const bool is_limited =
            num_connections_within(num_free, needs.num_workers) < needs.num_connections;
        EXPECT_EQ(is_limited, nofile < num_files);
        const Finding found = finding_of(examine(facts, needs), "nofile");
        EXPECT_EQ(found.level, is_limited ? Level::kWarning : Level::kOk) << nofile;
    }
}

// How many workers a host that joins gets, its leader says.
TEST(Doctor, OfFilesTheNumberOfWorkersIsSaidWhereItIsKnown) {
    MachineFacts facts = good_machine();
    facts.nofile = 20;
    InstanceNeeds needs = small_needs();
    EXPECT_THAT(finding_of(examine(facts, needs), "nofile").remedy, HasSubstr(" workers need "));
    needs.is_share_unknown = true;
    EXPECT_THAT(finding_of(examine(facts, needs), "nofile").remedy,
                ::testing::StartsWith("afdd needs "));
}

// Goal: a soft limit that afdd raises is none. Method: a child with a low one. Oracle: its facts.
TEST(Doctor, JudgesTheLimitToWhichAfddRaisesItsOwn) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        rlimit limit{};
        if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) ::_exit(1);
        limit.rlim_cur = 64;
        if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::_exit(2);
        const uint64_t hard = limit.rlim_max == RLIM_INFINITY ? kUnlimited : limit.rlim_max;
        ::_exit(read_machine().nofile == hard ? 0 : 3);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Doctor, ReadsThisMachine) {
    const MachineFacts facts = read_machine();
    EXPECT_GT(facts.num_cores, 0u);
    EXPECT_GT(facts.nofile, 0u);
    EXPECT_GT(facts.memory_bytes, 0u);
    EXPECT_GT(facts.clock_ns, 0);
}

// Goal: of several failures the exit code is that of the one to which afdd's start comes first.
// Oracle: Afdd::run().
TEST(Doctor, EndsAsTheFirstFailureOfAStart) {
    const Finding memory = {"memory", Level::kFailed, "", "", ExitCode::kSharedMemory};
    for (const char* earlier : {"nofile", "runtime", "cache", "network"}) {
        const Finding finding = {earlier, Level::kFailed, "", "", ExitCode::kUsage};
        EXPECT_EQ(exit_code_of({memory, finding}), ExitCode::kUsage) << earlier;
    }
    for (const char* later : {"certificates", "http"}) {
        const Finding finding = {later, Level::kFailed, "", "", ExitCode::kUsage};
        EXPECT_EQ(exit_code_of({finding, memory}), ExitCode::kSharedMemory) << later;
        EXPECT_EQ(exit_code_of({finding}), ExitCode::kUsage) << later;
    }
}

TEST(Doctor, TellsPeopleAndPrograms) {
    const std::vector<Finding> findings = {{"shm", Level::kFailed, "1 MiB free", "enlarge it"},
                                           {"clock", Level::kOk, "tsc", ""}};
    EXPECT_EQ(findings_text(findings),
              "shm           failed   1 MiB free\n"
              "                       enlarge it\n"
              "clock         ok       tsc\n");
    EXPECT_EQ(exit_code_of(findings), ExitCode::kSharedMemory);
    EXPECT_EQ(exit_code_of({findings.back()}), ExitCode::kOk);
    const nlohmann::json array = nlohmann::json::parse(findings_json(findings));
    EXPECT_EQ(array[0]["level"], "failed");
    EXPECT_EQ(array[0]["remedy"], "enlarge it");
    EXPECT_EQ(array[1]["subject"], "clock");
}

}  // namespace
}  // namespace afd::daemon
