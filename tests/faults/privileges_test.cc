// SPDX-License-Identifier: Apache-2.0
//
// What workers have given up by the time that they serve.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "proto/sanitizers.h"
#include "tests/integration/background_generation.h"
#include "tests/integration/instance.h"

namespace afd::test {
namespace {

constexpr bool kCanConfine = AFD_SANITIZED == 0;

std::string text_of(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

// Oracle: the kernel's own word about each worker.
TEST(Privileges, WorkersCannotGainAny) {
    Instance instance({"--attention-workers", "1", "--ffn-workers", "1"});
    instance.wait_ready();
    for (const char* role : {"attention", "ffn"}) {
        for (const pid_t pid : instance.worker_pids(role)) {
            EXPECT_THAT(text_of("/proc/" + std::to_string(pid) + "/status"),
                        testing::HasSubstr("NoNewPrivs:\t1\n"))
                << role;
        }
    }
    EXPECT_EQ(instance.stop(), 0);
}

struct Confinement {
    std::vector<std::string> flags;
    bool is_confined = false;
};

// Each thread of each worker has the filter, or with seccomp = false none has; and serves.
TEST(Privileges, WorkersAreConfinedUnlessToldOtherwise) {
    const Confinement cases[] = {
        {{}, true},
        {{"--seccomp", "false"}, false},
        {{"--transport", "ucx"}, true},
        {{"--transport", "ucx", "--ucx-neighbours", "ucx"}, true},
        {{"--transport", "ucx", "--ucx-transports", "tcp,self"}, false},
    };
    for (const auto& [flags, is_confined] : cases) {
        SCOPED_TRACE(testing::PrintToString(flags));
        Instance instance(flags);
        instance.wait_ready();
        for (const char* role : {"attention", "ffn"}) {
            const pid_t pid = instance.worker_pids(role)[0];
            const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
            for (const auto& task : std::filesystem::directory_iterator(tasks)) {
                EXPECT_THAT(text_of(task.path() / "status"),
                            testing::HasSubstr(is_confined && kCanConfine ? "Seccomp:\t2\n"
                                                                          : "Seccomp:\t0\n"))
                    << role;
            }
        }
        // Long enough for two phases, whose memory is attached meanwhile.
        client::Generate request = long_request(8);
        for (uint32_t i = 0; i < 300; ++i) request.mutable_token_ids()->add_ids(2 + i % 200);
        const auto generated = instance.connect().generate(request);
        EXPECT_TRUE(generated.ok()) << generated.error().message;
        EXPECT_EQ(instance.log().find("go through the windows"), std::string::npos);
        EXPECT_EQ(instance.stop(), 0);
    }
}

}  // namespace
}  // namespace afd::test
