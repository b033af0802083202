// SPDX-License-Identifier: Apache-2.0
//
// Requests that are resumed after their client was killed. Goal: what both clients have heard is
// one reply. Method: afdctl as a process of its own, kill -9 in mid-stream, a worker killed
// between. Oracle: the same request on the undisturbed instance, to the last bit.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>

#include "tests/integration/background_generation.h"
#include "tests/integration/instance.h"
#include "tests/integration/spawned_program.h"

namespace afd::test {
namespace {

constexpr uint32_t kStoryTokens = 900;

// Whose FFN worker may stand still for as long as a test needs.
const std::vector<std::string> kMayBeStopped = {"--ffn-workers", "1", "--stop-timeout-ms", "0"};

uint64_t kv_tokens_used(const client::Status& status) {
    uint64_t used = 0;
    for (const client::Worker& worker : status.workers()) used += worker.kv_tokens_used();
    return used;
}

// afdctl generate with its outputs in files.
class Afdctl {
  public:
    Afdctl(const Instance& instance, std::vector<std::string> arguments)
        : directory_(make_directory()) {
        arguments.insert(arguments.begin(), {program("afdctl"), "--instance", instance.name()});
        std::vector<char*> argv;
        for (std::string& argument : arguments) argv.push_back(argument.data());
        argv.push_back(nullptr);
        pid_ = fork();
        if (pid_ != 0) return;
        setenv("XDG_RUNTIME_DIR", instance.runtime_directory().c_str(), 1);
        dup2(open((directory_ + "/out").c_str(), O_CREAT | O_WRONLY, 0600), STDOUT_FILENO);
        dup2(open((directory_ + "/err").c_str(), O_CREAT | O_WRONLY, 0600), STDERR_FILENO);
        execv(argv[0], argv.data());
        _exit(127);
    }
    ~Afdctl() {
        if (pid_ > 0) kill_now();
    }

    std::string out() const { return read_text(directory_ + "/out"); }
    std::string err() const { return read_text(directory_ + "/err"); }
    std::string resume_id() const {
        const std::string said = err();
        const size_t at = said.find("--resume ");
        if (at == std::string::npos || said.find('\n', at) == std::string::npos) return "";
        return said.substr(at + 9, said.find_first_of(" \n", at + 9) - at - 9);
    }

    void signal(int number) const { kill(pid_, number); }
    void kill_now() {
        kill(pid_, SIGKILL);
        waitpid(std::exchange(pid_, -1), nullptr, 0);
    }
    int wait_exit() {
        int status = 0;
        waitpid(std::exchange(pid_, -1), &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }

  private:
    const std::string directory_;
    pid_t pid_ = -1;
};

std::vector<std::string> story(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"generate",
                                          "It was a fine morning",
                                          "--max-tokens",
                                          std::to_string(kStoryTokens),
                                          "--temperature",
                                          "0.8",
                                          "--seed",
                                          "7",
                                          "--ignore-eos"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
}

// Starts it, and kills it in mid-stream; its id, and the text that came. The FFN worker is stopped
// then, so that the request goes on only when the test lets it.
std::string start_and_kill(const Instance& instance,
                           const std::vector<std::string>& more,
                           std::string& heard) {
    std::vector<std::string> flags = {"--resumable"};
    flags.insert(flags.end(), more.begin(), more.end());
    const pid_t ffn = instance.worker_pids("ffn")[0];
    for (int attempt = 0; attempt < kAttemptsToBeInTime; ++attempt) {
        Afdctl client(instance, story(flags));
        EXPECT_TRUE(wait_until("the client hears 40 bytes", [&] {
            return client.out().size() > 40;
        })) << client.err();
        kill(ffn, SIGSTOP);
        const std::string id = client.resume_id();
        EXPECT_EQ(id.size(), 32U) << client.err();
        client.kill_now();
        heard = client.out();
        if (run_on(instance, 1)) return id;
        kill(ffn, SIGCONT);
        // So that no drain waits for somebody who hears it.
        Afdctl(instance, {"generate", "--resume", id}).wait_exit();
    }
    ADD_FAILURE() << "it was always over before it was killed";
    return "";
}

// What clients have heard of one request.
struct Heard {
    std::string resume_id;
    uint64_t num_chunks = 0;
    std::string text;
    std::vector<uint32_t> ids;
    std::vector<float> logprobs;

    void take(const client::Chunk& chunk) {
        ++num_chunks;
        text += chunk.text();
        ids.insert(ids.end(), chunk.token_ids().begin(), chunk.token_ids().end());
        logprobs.insert(logprobs.end(), chunk.logprobs().begin(), chunk.logprobs().end());
    }
    client::Resume resume() const {
        client::Resume resume;
        resume.set_id(resume_id);
        resume.set_received_chunks(num_chunks);
        return resume;
    }
};

// Sends it, and leaves after 20 chunks. The FFN worker is stopped then, so that the rest is still
// to come when nobody has it.
Heard begin_and_leave(const Instance& instance, const client::Generate& request) {
    const pid_t ffn = instance.worker_pids("ffn")[0];
    for (uint32_t attempt = 0; attempt < kAttemptsToBeInTime; ++attempt) {
        Heard heard;
        {
            client::Connection connection = instance.open_connection();
            client::Request first;
            first.set_request_id(1);
            *first.mutable_generate() = request;
            EXPECT_TRUE(connection.send(first).ok());
            wait_until("20 chunks have come", [&] {
                std::vector<client::Response> answers;
                EXPECT_TRUE(connection.receive(answers).ok());
                for (const client::Response& answer : answers) {
                    if (answer.has_accepted()) heard.resume_id = answer.accepted().resume_id();
                    if (answer.has_chunk()) heard.take(answer.chunk());
                }
                return heard.num_chunks >= 20;
            });
            kill(ffn, SIGSTOP);
        }
        // Those of before are over, and kept.
        instance.wait_for("nobody has it", [&](const client::Status& status) {
            return status.num_detached() == attempt + 1;
        });
        if (run_on(instance, 1)) return heard;
        kill(ffn, SIGCONT);
        // So that no drain waits for somebody who hears it.
        EXPECT_TRUE(instance.connect().resume(heard.resume()).ok());
    }
    ADD_FAILURE() << "it was always over before its client left";
    return {};
}

TEST(ResumableRequests, AKilledAfdctlIsResumedWithTheSameText) {
    Instance instance(kMayBeStopped);
    instance.wait_ready();
    Afdctl undisturbed(instance, story({}));
    ASSERT_EQ(undisturbed.wait_exit(), 0) << undisturbed.err();
    std::string heard;
    const std::string id = start_and_kill(instance, {}, heard);
    ASSERT_LT(heard.size(), undisturbed.out().size()) << "it had ended before it was killed";
    EXPECT_TRUE(undisturbed.out().starts_with(heard));
    kill(instance.worker_pids("ffn")[0], SIGCONT);
    Afdctl resumed(instance, {"generate", "--resume", id});
    EXPECT_EQ(resumed.wait_exit(), 0) << resumed.err();
    EXPECT_EQ(resumed.out(), undisturbed.out());
    EXPECT_NE(resumed.err().find("length: "), std::string::npos) << resumed.err();
    // It has finished, and can be heard again, or its end alone.
    Afdctl rest(instance,
                {"generate", "--resume", id, "--received", std::to_string(kStoryTokens - 10)});
    EXPECT_EQ(rest.wait_exit(), 0) << rest.err();
    EXPECT_FALSE(rest.out().empty());
    EXPECT_TRUE(undisturbed.out().ends_with(rest.out()));
    EXPECT_LT(rest.out().size(), 200U);
    Afdctl unknown(instance, {"generate", "--resume", std::string(32, '0')});
    EXPECT_EQ(unknown.wait_exit(), 1);
    EXPECT_NE(unknown.err().find("no request of yours"), std::string::npos) << unknown.err();
    EXPECT_EQ(instance.stop(), 0);
}

// Both halves, with log probabilities, while an FFN worker and then an attention worker die.
TEST(ResumableRequests, BothHalvesAreTheUndisturbedReplyAlsoIfWorkersDieBetween) {
    Instance instance({"--attention-workers", "2", "--ffn-workers", "1", "--stop-timeout-ms", "0"});
    instance.wait_ready();
    client::Generate request = long_request(kStoryTokens);
    const auto undisturbed = instance.connect().generate(request);
    ASSERT_TRUE(undisturbed.ok()) << undisturbed.error().message;
    request.set_resumable_ms(60'000);

    const pid_t ffn = instance.worker_pids("ffn")[0];
    Heard heard = begin_and_leave(instance, request);
    EXPECT_GT(kv_tokens_used(instance.status()), 0U);
    kill(ffn, SIGKILL);
    for (const pid_t pid : instance.worker_pids("attention")) kill(pid, SIGKILL);
    const auto rest = instance.connect().resume(heard.resume(), [&](const client::Chunk& chunk) {
        heard.take(chunk);
        return true;
    });
    ASSERT_TRUE(rest.ok()) << rest.error().message;
    EXPECT_EQ(heard.text, undisturbed.value().text);
    EXPECT_EQ(heard.ids, undisturbed.value().token_ids);
    ASSERT_EQ(heard.logprobs.size(), undisturbed.value().logprobs.size());
    for (size_t i = 0; i < heard.logprobs.size(); ++i) {
        ASSERT_EQ(std::bit_cast<uint32_t>(heard.logprobs[i]),
                  std::bit_cast<uint32_t>(undisturbed.value().logprobs[i]))
            << "logprob " << i;
    }
    EXPECT_EQ(rest.value().finished.num_output_tokens(), kStoryTokens);
    EXPECT_EQ(instance.stop(), 0);
}

TEST(ResumableRequests, WhatNobodyResumesGivesItsKvRoomBack) {
    Instance instance(kMayBeStopped);
    instance.wait_ready();
    client::Generate request = long_request(kStoryTokens);
    // Long enough for a status between, on a busy machine.
    request.set_resumable_ms(6000);
    // Nothing is computed meanwhile, so it is the time that ends it.
    const pid_t ffn = instance.worker_pids("ffn")[0];
    kill(ffn, SIGSTOP);
    std::string id;
    {
        client::Connection connection = instance.open_connection();
        client::Request first;
        first.set_request_id(1);
        *first.mutable_generate() = request;
        ASSERT_TRUE(connection.send(first).ok());
        ASSERT_TRUE(wait_until("the request is accepted", [&] {
            std::vector<client::Response> answers;
            EXPECT_TRUE(connection.receive(answers).ok());
            for (const client::Response& answer : answers) {
                if (answer.has_accepted()) id = answer.accepted().resume_id();
            }
            return !id.empty();
        }));
    }
    instance.wait_for("it is kept without a client", [](const client::Status& status) {
        return status.num_detached() == 1 && kv_tokens_used(status) > 0;
    });
    instance.wait_for("its time is over",
                      [](const client::Status& status) { return status.num_detached() == 0; });
    kill(ffn, SIGCONT);
    instance.wait_for("its room is free", [](const client::Status& status) {
        return kv_tokens_used(status) == 0 && status.num_running() == 0 && status.kept_bytes() == 0;
    });
    client::Resume resume;
    resume.set_id(id);
    const auto late = instance.connect().resume(resume);
    ASSERT_FALSE(late.ok());
    EXPECT_EQ(late.error().code, Code::kNotFound);
    EXPECT_EQ(instance.stop(), 0);
}

TEST(ResumableRequests, ASecondConnectionTakesItOverFromAStoppedOne) {
    std::vector<std::string> flags = kMayBeStopped;
    flags.insert(flags.end(), {"--log-level", "debug"});
    Instance instance(flags);
    instance.wait_ready();
    Afdctl undisturbed(instance, story({}));
    ASSERT_EQ(undisturbed.wait_exit(), 0);
    // Nothing is computed before the second one has it: the first may not have heard the end.
    const pid_t ffn = instance.worker_pids("ffn")[0];
    kill(ffn, SIGSTOP);
    Afdctl first(instance, story({"--resumable"}));
    ASSERT_TRUE(wait_until("the first is told its id", [&] { return !first.resume_id().empty(); }));
    first.signal(SIGSTOP);
    Afdctl second(instance, {"generate", "--resume", first.resume_id()});
    ASSERT_TRUE(wait_until("the second resumes it", [&] {
        return instance.log().find("resumed by client pid") != std::string::npos;
    }));
    kill(ffn, SIGCONT);
    EXPECT_EQ(second.wait_exit(), 0) << second.err();
    EXPECT_EQ(second.out(), undisturbed.out());
    first.signal(SIGCONT);
    EXPECT_EQ(first.wait_exit(), 1) << first.err();
    EXPECT_NE(first.err().find("another connection has resumed"), std::string::npos) << first.err();
    EXPECT_EQ(instance.stop(), 0);
}

// SIGTERM: it finishes, and whoever resumes meanwhile hears it; afdd waits for that.
TEST(ResumableRequests, ADrainLetsItFinishAndBeHeard) {
    Instance instance(kMayBeStopped);
    instance.wait_ready();
    Afdctl undisturbed(instance, story({}));
    ASSERT_EQ(undisturbed.wait_exit(), 0);
    std::string heard;
    const std::string id = start_and_kill(instance, {"--keep", "30"}, heard);
    const pid_t ffn = instance.worker_pids("ffn")[0];
    instance.signal(SIGTERM);
    instance.wait_for("it drains",
                      [](const client::Status& status) { return status.state() == "draining"; });
    kill(ffn, SIGCONT);
    Afdctl resumed(instance, {"generate", "--resume", id});
    EXPECT_EQ(resumed.wait_exit(), 0) << resumed.err();
    EXPECT_EQ(resumed.out(), undisturbed.out());
    EXPECT_EQ(instance.wait_exit(), 0);
}

}  // namespace
}  // namespace afd::test
