// SPDX-License-Identifier: Apache-2.0
#include "proto/socket_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace afd {
namespace {

using ::testing::HasSubstr;

TEST(InstanceName, IsRefusedUnlessItIsAPlainWord) {
    EXPECT_TRUE(check_instance_name("a_1").ok());
    EXPECT_TRUE(check_instance_name(std::string(kInstanceNameBytesMax, 'a')).ok());
    for (const std::string bad : {"", ".hidden", "a/b", "a b", "a-b", "A", "\xc3\xa9"}) {
        const Result<> result = check_instance_name(bad);
        ASSERT_FALSE(result.ok()) << bad;
        EXPECT_EQ(result.error().code, Code::kInvalidArgument);
        EXPECT_THAT(result.error().message, HasSubstr("'" + bad + "'"));
    }
    EXPECT_FALSE(check_instance_name(std::string(kInstanceNameBytesMax + 1, 'a')).ok());
}

// Goal: an instance that could start, but not be upgraded for want of a byte, is refused at once.
// Method: directories of lengths around the limit, by the length of the second control socket.
// Oracle: what the kernel takes, 107 bytes; the message.
TEST(InstancePaths, FitWithTheSecondControlSocket) {
    const char* before = std::getenv("XDG_RUNTIME_DIR");
    const std::string restored = before == nullptr ? "" : before;
    const std::string rest = "/afd/demo.control2.sock";
    for (const size_t bytes : {106u, 107u, 108u}) {
        const std::string directory = "/" + std::string(bytes - rest.size() - 1, 'd');
        ::setenv("XDG_RUNTIME_DIR", directory.c_str(), 1);
        const Result<InstancePaths> paths = instance_paths("demo");
        ASSERT_EQ(paths.ok(), bytes <= 107) << bytes;
        if (paths.ok()) {
            EXPECT_EQ(second_control_socket(paths.value()), directory + rest);
        } else {
            EXPECT_EQ(paths.error().code, Code::kInvalidArgument);
            EXPECT_THAT(paths.error().message,
                        HasSubstr("control2.sock' has 108 bytes; the kernel takes at most 107; "
                                  "choose a shorter path: by --socket, or by a shorter directory "
                                  "(XDG_RUNTIME_DIR) "
                                  "or instance name"));
        }
    }
    before == nullptr ? ::unsetenv("XDG_RUNTIME_DIR")
                      : ::setenv("XDG_RUNTIME_DIR", restored.c_str(), 1);
}

}  // namespace
}  // namespace afd
