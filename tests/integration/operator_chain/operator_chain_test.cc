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

TEST(OperatorChain, ProcessesOfOperatorsAloneGiveTheBitsOfTheDaemon) {
    const std::string instance = "chain" + std::to_string(::getpid());
    const std::string prefix = schedule::segment_prefix(instance, 1);
    const TemporaryDirectory directory;
    const ChainMemory memory = ChainMemory::create(prefix);
    std::vector<pid_t> ffn;
    std::vector<pid_t> attention;
    const auto output = [&](uint32_t session) {
        return directory.path("rows" + std::to_string(session));
    };
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
        ffn.push_back(start(AFD_CHAIN_FFN, {prefix, std::to_string(rank)}, ""));
    }
    for (uint32_t session = 0; session < kSessions; ++session) {
        attention.push_back(start(AFD_CHAIN_ATTENTION,
                                  {prefix, std::to_string(session), std::to_string(kCalls)},
                                  output(session)));
    }
    for (const pid_t pid : attention) expect_exit_with_zero(pid, "attention worker");
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
        schedule::ContextWords(ChainMemory::context(memory.ffn_control(rank))).set_run_flag(false);
    }
    for (const pid_t pid : ffn) expect_exit_with_zero(pid, "FFN worker");

    for (uint32_t session = 0; session < kSessions; ++session) {
        std::vector<uint16_t> expected;
        for (uint32_t number = 0; number < kCalls; ++number) {
            const daemon::Call call(seed_of_call(session, number), kTokensMax);
            const std::vector<uint16_t> bits = daemon::local_result(call);
            expected.insert(expected.end(), bits.begin(), bits.end());
        }
        EXPECT_GT(expected.size(), size_t{kCalls} * daemon::kHidden);
        EXPECT_EQ(read_bits(output(session)), expected) << "session " << session;
    }
}

}  // namespace
}  // namespace afd::test
