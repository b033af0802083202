// SPDX-License-Identifier: Apache-2.0
//
// Goal: the operators of both sides can be driven live, without the daemon, and give its bits.
// Method: two attention workers and two FFN workers made of the stand-alone operators only, as
// separate processes over segments that are formatted as afdd formats them; random calls, masked
// slots and ragged sizes included, all micro-batches in flight. At the end run_flag = 0 lets the
// FFN workers leave. Oracle: local_result of tests/daemon/lanes/random_moe.h, which is what the
// daemon's lanes are held to as well (window_moe_test.cc); every process exits with 0.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cstring>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tests/integration/operator_chain/chain_memory.h"
#include "tests/temporary_directory.h"

namespace afd::test {
namespace {

constexpr uint32_t kCalls = 200;

// `output`: a file for standard output, or empty.
pid_t start(const std::string& program,
            const std::vector<std::string>& arguments,
            const std::string& output) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    if (!output.empty() && std::freopen(output.c_str(), "w", stdout) == nullptr) ::_exit(126);
    std::vector<char*> argv = {const_cast<char*>(program.c_str())};
    for (const std::string& argument : arguments) {
        argv.push_back(const_cast<char*>(argument.c_str()));
    }
    argv.push_back(nullptr);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
}

void expect_exit_with_zero(pid_t pid, const std::string& who) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status)) << who << " ended by signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0) << who;
}

std::vector<uint16_t> read_bits(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    std::vector<uint16_t> bits(bytes.size() / 2);
    std::memcpy(bits.data(), bytes.data(), bits.size() * 2);
    return bits;
}

// A process of the chain: a program and its arguments.
using Command = std::vector<std::string>;

std::vector<uint16_t> expected_bits(uint32_t session) {
    std::vector<uint16_t> expected;
    for (uint32_t number = 0; number < kCalls; ++number) {
        const daemon::Call call(seed_of_call(session, number), kTokensMax);
        const std::vector<uint16_t> bits = daemon::local_result(call);
        expected.insert(expected.end(), bits.begin(), bits.end());
    }
    EXPECT_GT(expected.size(), size_t{kCalls} * daemon::kHidden);
    return expected;
}

// Runs the FFN workers and the sessions, the word PREFIX in whose arguments stands for that of the
// segments. Returns each session's rows.
std::vector<std::vector<uint16_t>> run_chain(const std::vector<Command>& ranks,
                                             const std::vector<Command>& sessions,
                                             const TemporaryDirectory& directory) {
    const std::string prefix = schedule::segment_prefix("chain" + std::to_string(::getpid()), 1);
    const ChainMemory memory = ChainMemory::create(prefix);
    const auto start_all = [&](const std::vector<Command>& commands, const std::string& output) {
        std::vector<pid_t> pids;
        for (size_t i = 0; i < commands.size(); ++i) {
            Command arguments(commands[i].begin() + 1, commands[i].end());
            std::replace(
                arguments.begin(), arguments.end(), std::string("PREFIX"), std::string(prefix));
            const std::string file = output.empty() ? output : output + std::to_string(i);
            pids.push_back(start(commands[i][0], arguments, file));
        }
        return pids;
    };
    const std::vector<pid_t> ffn = start_all(ranks, "");
    const std::vector<pid_t> attention = start_all(sessions, directory.path("rows"));
    for (const pid_t pid : attention) expect_exit_with_zero(pid, "attention worker");
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
        schedule::ContextWords(ChainMemory::context(memory.ffn_control(rank))).set_run_flag(false);
    }
    for (const pid_t pid : ffn) expect_exit_with_zero(pid, "FFN worker");
    std::vector<std::vector<uint16_t>> rows;
    for (uint32_t session = 0; session < kSessions; ++session) {
        rows.push_back(read_bits(directory.path("rows") + std::to_string(session)));
    }
    return rows;
}

Command ffn_of_operators(uint32_t rank) {
    return {AFD_CHAIN_FFN, "PREFIX", std::to_string(rank)};
}

Command session_of_operators(uint32_t session) {
    return {AFD_CHAIN_ATTENTION, "PREFIX", std::to_string(session), std::to_string(kCalls)};
}

TEST(OperatorChain, ProcessesOfOperatorsAloneGiveTheBitsOfTheDaemon) {
    const TemporaryDirectory directory;
    const auto rows = run_chain({ffn_of_operators(0), ffn_of_operators(1)},
                                {session_of_operators(0), session_of_operators(1)},
                                directory);
    for (uint32_t session = 0; session < kSessions; ++session) {
        EXPECT_EQ(rows[session], expected_bits(session)) << "session " << session;
    }
}

#ifdef AFD_CHAIN_PYTHON
// What these tests hand over: in python_worker.py's words, a file.
class WorkerFile {
  public:
    explicit WorkerFile(const std::string& path) : file_(path, std::ios::binary) {}

    template <typename T>
    void append(const std::vector<T>& values) {
        file_.write(reinterpret_cast<const char*>(values.data()),
                    static_cast<std::streamsize>(values.size() * sizeof(T)));
    }
    void append_sizes(std::initializer_list<size_t> sizes) {
        append(std::vector<int32_t>(sizes.begin(), sizes.end()));
    }

  private:
    std::ofstream file_;
};

Command python_worker(const std::string& what, uint32_t index, const std::string& file) {
    EXPECT_EQ(::setenv("PYTHONPATH", AFD_CHAIN_PACKAGE, 1), 0);
    return {AFD_CHAIN_PYTHON, "-B", AFD_CHAIN_WORKER, what, "PREFIX", std::to_string(index), file};
}

Command python_session(uint32_t session, const TemporaryDirectory& directory) {
    const std::string path = directory.path("calls");
    WorkerFile file(path);
    file.append_sizes(
        {kRanks, daemon::kLayers, daemon::kPerLayer, daemon::kTopK, daemon::kHidden, kCalls});
    file.append(rank_table());
    for (uint32_t number = 0; number < kCalls; ++number) {
        const daemon::Call call(seed_of_call(session, number), kTokensMax);
        file.append_sizes({call.input.num_tokens, call.input.layer_id});
        file.append(call.x);
        file.append(call.ids);
        file.append(call.weights);
    }
    return python_worker("session", session, path);
}

// An expert's matrix of daemon::make_expert, in a place of kIntermediate columns.
constexpr uint32_t kIntermediate = 48;

void append_expert(WorkerFile& file, uint32_t layer, uint32_t expert) {
    const uint32_t intermediate = daemon::intermediate_of(layer, expert);
    for (uint32_t which = 1; which <= 2; ++which) {
        daemon::Matrix rows = daemon::expert_matrix(layer, expert, which);
        rows.resize(size_t{kIntermediate} * daemon::kHidden);
        file.append(rows);
    }
    const daemon::Matrix down = daemon::expert_matrix(layer, expert, 3);
    for (uint32_t row = 0; row < daemon::kHidden; ++row) {
        const auto begin = down.begin() + row * intermediate;
        daemon::Matrix columns(begin, begin + intermediate);
        columns.resize(kIntermediate);
        file.append(columns);
    }
}

Command python_ffn_worker(uint32_t rank, const TemporaryDirectory& directory) {
    const std::string path = directory.path("experts");
    const schedule::ExpertPlacement placement = daemon::placement_of(kRanks);
    const size_t per_layer = placement.num_local_experts_per_layer(rank);
    const size_t num_keys = daemon::kLayers * per_layer;
    std::vector<const schedule::HeldExpert*> by_key(num_keys);
    const std::vector<schedule::HeldExpert> all_held = placement.held_experts(rank);
    for (const schedule::HeldExpert& held : all_held) {
        by_key[held.layer_id * per_layer + static_cast<size_t>(held.local_id)] = &held;
    }
    WorkerFile file(path);
    file.append_sizes({daemon::kLayers, num_keys, daemon::kHidden, kIntermediate});
    for (const schedule::HeldExpert* held : by_key) {
        if (held != nullptr) {
            append_expert(file, held->layer_id, held->expert);
        } else {
            file.append(daemon::Matrix(3 * size_t{kIntermediate} * daemon::kHidden));
        }
    }
    return python_worker("ffn", rank, path);
}

// Goal: a session in Python takes part beside workers in C++. Method and oracle: as above, with
// session 1 the example of the Python package.
TEST(OperatorChain, ASessionInPythonTakesPartAndGivesTheSameBits) {
    const TemporaryDirectory directory;
    const auto rows = run_chain({ffn_of_operators(0), ffn_of_operators(1)},
                                {session_of_operators(0), python_session(1, directory)},
                                directory);
    for (uint32_t session = 0; session < kSessions; ++session) {
        EXPECT_EQ(rows[session], expected_bits(session)) << "session " << session;
    }
}

// Goal: an FFN worker in Python takes part beside workers in C++, with a session in Python and one
// in C++. Method: as above. Oracle: as above, but its last product is NumPy's, whose sums have
// another order; a row of another token, slot or expert would be off by its whole size.
TEST(OperatorChain, AnFfnWorkerInPythonTakesPart) {
    const TemporaryDirectory directory;
    const auto rows = run_chain({ffn_of_operators(0), python_ffn_worker(1, directory)},
                                {session_of_operators(0), python_session(1, directory)},
                                directory);
    for (uint32_t session = 0; session < kSessions; ++session) {
        const std::vector<uint16_t> expected = expected_bits(session);
        ASSERT_EQ(rows[session].size(), expected.size());
        for (size_t i = 0; i < expected.size(); ++i) {
            const float want = ops::to_float(ops::Bf16{expected[i]});
            ASSERT_NEAR(
                ops::to_float(ops::Bf16{rows[session][i]}), want, 0.002F + std::abs(want) / 64)
                << "session " << session << ", value " << i;
        }
    }
}
#endif

}  // namespace
}  // namespace afd::test
