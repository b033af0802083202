// SPDX-License-Identifier: Apache-2.0
//
// Goal: who does not read the log holds nobody up. Method: afdd and its workers write their log to
// a pipe of one page, which nobody reads while requests are served, and whose reader then comes
// back, or never, or is gone. Oracle: all requests end, a line says that others are lost, and afdd
// stops when it is told to.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <string>

#include "daemon/loop/unique_fd.h"
#include "tests/integration/instance.h"

namespace afd::test {
namespace {

class UnreadLog : public ::testing::Test {
  protected:
    UnreadLog() : path_(make_directory() + "/log") {
        EXPECT_EQ(mkfifo(path_.c_str(), 0600), 0);
        // To read and write, so that it opens before there is a writer.
        reader_.reset(open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
        EXPECT_GE(fcntl(reader_.get(), F_SETPIPE_SZ, 4096), 4096);
    }

    std::string read_all() {
        std::string text;
        std::array<char, 4096> bytes;
        for (ssize_t n = 0; (n = read(reader_.get(), bytes.data(), bytes.size())) > 0;) {
            text.append(bytes.data(), static_cast<size_t>(n));
        }
        return text;
    }

    // Each says more than a line of it.
    static void serve(const Instance& instance) {
        client::Client client = instance.connect();
        for (int i = 0; i < 60; ++i) {
            client::Generate request;
            request.set_text("Once upon a time");
            request.set_max_tokens(3);
            const auto answer = client.generate(request);
            ASSERT_TRUE(answer.ok()) << "request " << i << ": " << answer.error().message;
        }
    }

    const std::string path_;
    daemon::UniqueFd reader_;
};

TEST_F(UnreadLog, HoldsNobodyUp) {
    Instance instance({"--log-level", "debug"}, "exec >" + path_ + " 2>&1");
    instance.wait_ready();
    serve(instance);
    EXPECT_EQ(instance.stop(), 0);
    EXPECT_NE(read_all().find("afdd"), std::string::npos) << "nothing was ever written there";
}

// A line of the successor of a worker is the first one that nobody will read.
TEST_F(UnreadLog, AReaderWhoIsGoneEndsNobody) {
    Instance instance({}, "exec >" + path_ + " 2>&1");
    instance.wait_ready();
    reader_.reset();
    for (const char* role : {"ffn", "attention"}) instance.replace_worker(role, 0, SIGKILL);
    serve(instance);
    EXPECT_EQ(instance.stop(), 0);
}

TEST_F(UnreadLog, SaysWhatIsLostOnceItIsRead) {
    Instance instance({"--log-level", "debug"}, "exec >" + path_ + " 2>&1");
    instance.wait_ready();
    serve(instance);
    std::string text = read_all();
    serve(instance);
    text += read_all();
    EXPECT_NE(text.find("no room for lines of this log, which are lost: "), std::string::npos)
        << text;
    EXPECT_EQ(instance.stop(), 0);
}

}  // namespace
}  // namespace afd::test
