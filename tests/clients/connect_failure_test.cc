// SPDX-License-Identifier: Apache-2.0
//
// What is said where no afdd can be reached.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "clients/afd_client.h"
#include "proto/socket_path.h"
#include "tests/temporary_directory.h"

namespace afd::client {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class ConnectFailure : public ::testing::Test {
  protected:
    // A directory of our own as XDG_RUNTIME_DIR.
    void SetUp() override {
        directory_.make_socket_directory();
        setenv("XDG_RUNTIME_DIR", directory_.path().c_str(), 1);
    }
    void TearDown() override { unsetenv("XDG_RUNTIME_DIR"); }

    // A socket file; with `backlog` < 0 nobody listens on it.
    int make_socket(const std::string& path, int backlog) {
        sockaddr_un address = {};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, path.data(), path.size());
        const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
        EXPECT_TRUE(backlog < 0 || listen(fd, backlog) == 0);
        return fd;
    }

    afd::Error connect_error(const std::string& socket, const std::string& instance) {
        const Result<Endpoint> endpoint = resolve_endpoint(socket, instance);
        if (!endpoint.ok()) return endpoint.error();
        const Result<Client> client = Client::connect(endpoint.value(), milliseconds(50));
        if (!client.ok()) return client.error();
        return {Code::kOk, "connected"};
    }

    const test::TemporaryDirectory directory_;
};

TEST_F(ConnectFailure, NoSuchSocketSaysHowToStartAndWhatElseRuns) {
    std::ofstream(directory_.path("afd/other.sock"));
    std::ofstream(directory_.path("afd/other.control.sock"));
    const afd::Error error = connect_error("", "demo");
    EXPECT_EQ(error.code, Code::kNotFound);
    EXPECT_THAT(error.message, HasSubstr("instance 'demo'"));
    EXPECT_THAT(error.message, HasSubstr(directory_.path("afd/demo.sock")));
    EXPECT_THAT(error.message, HasSubstr("start it with: afdd --demo"));
    EXPECT_TRUE(error.message.ends_with("other instances here (--instance): other"))
        << error.message;
}

TEST_F(ConnectFailure, StaleSocketIsTold) {
    close(make_socket(directory_.path("afd/default.sock"), -1));
    const afd::Error error = connect_error("", "default");
    EXPECT_EQ(error.code, Code::kUnavailable);
    EXPECT_THAT(error.message, HasSubstr("nobody listens on this socket"));
    EXPECT_THAT(error.message, HasSubstr("start it with: afdd --model"));
}

TEST_F(ConnectFailure, FileThatIsNoSocketIsTold) {
    const std::string path = directory_.path("afd/plain.sock");
    std::ofstream(path).put('x');
    const afd::Error error = connect_error(path, "");
    EXPECT_THAT(error.message, HasSubstr("nobody listens on this socket"));
    EXPECT_THAT(error.message, HasSubstr("start afdd, or check this path"));
}

TEST_F(ConnectFailure, FullBacklogEndsAtTheDeadline) {
    const std::string path = directory_.path("afd/full.sock");
    const int listener = make_socket(path, 0);
    const Result<Client> first = Client::connect({path, ""}, milliseconds(50));
    ASSERT_TRUE(first.ok()) << first.error().message;
    const afd::Error error = connect_error(path, "");
    EXPECT_EQ(error.code, Code::kDeadlineExceeded);
    EXPECT_THAT(error.message, HasSubstr("afdd hangs or is stopped"));
    close(listener);
}

TEST_F(ConnectFailure, PermissionDeniedNamesTheReason) {
    const afd::Error error = explain_connect_failure({"/run/x.sock", ""}, EACCES);
    EXPECT_EQ(error.code, Code::kPermissionDenied);
    EXPECT_THAT(error.message, HasSubstr("use the client as that user"));
}

TEST_F(ConnectFailure, DirectoryThatOthersMayEnterIsNotTrusted) {
    std::filesystem::permissions(directory_.path("afd"), std::filesystem::perms::all);
    const afd::Error error = connect_error("", "default");
    EXPECT_EQ(error.code, Code::kPermissionDenied);
    EXPECT_THAT(error.message, HasSubstr("must belong to this user with mode 0700"));
}

TEST_F(ConnectFailure, BadInstanceNamesAndLongPathsAreTold) {
    for (const char* name : {"", "a/b", "../x", "a.control", "a-b", "Big", "sp ace"}) {
        const afd::Error error = connect_error("", name);
        EXPECT_EQ(error.code, Code::kInvalidArgument) << name;
        EXPECT_THAT(error.message, HasSubstr("must be 1 to 32 of a-z, 0-9 and '_'")) << name;
    }
    const afd::Error error = connect_error("/tmp/" + std::string(120, 'x'), "");
    EXPECT_EQ(error.code, Code::kInvalidArgument);
    EXPECT_THAT(error.message, HasSubstr("the kernel takes at most 107"));
}

TEST_F(ConnectFailure, InstancePathsFollowTheRule) {
    const Result<InstancePaths> paths = instance_paths("demo");
    ASSERT_TRUE(paths.ok());
    EXPECT_EQ(paths.value().client_socket, directory_.path("afd/demo.sock"));
    EXPECT_EQ(paths.value().control_socket, directory_.path("afd/demo.control.sock"));
    EXPECT_EQ(paths.value().lock_file, directory_.path("afd/demo.lock"));
    unsetenv("XDG_RUNTIME_DIR");
    EXPECT_EQ(instance_paths("demo").value().client_socket,
              "/tmp/afd-" + std::to_string(getuid()) + "/demo.sock");
}

}  // namespace
}  // namespace afd::client
