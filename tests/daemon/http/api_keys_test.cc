// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

using testing::HasSubstr;

constexpr const char* kFirst = "sk-0123456789abcdef";
constexpr const char* kSecond = "sk-fedcba9876543210";

class ApiKeysTest : public testing::Test {
  protected:
    std::string write(const std::string& text, unsigned mode = 0600) {
        std::string path = directory_.write("keys", text);
        EXPECT_EQ(::chmod(path.c_str(), mode), 0);
        return path;
    }
    std::string error_of(const std::string& path) {
        const Result<ApiKeys> keys = ApiKeys::load(path, "");
        return keys.ok() ? "loaded without an error" : keys.error().message;
    }

    test::TemporaryDirectory directory_;
};

TEST_F(ApiKeysTest, TellsKeysApartByName) {
    const Result<ApiKeys> keys =
        ApiKeys::load(write(std::string("# who may\n\nalice ") + kFirst + "\n  " + kSecond + "\n"),
                      "ignored-key-0123");
    ASSERT_TRUE(keys.ok()) << keys.error().message;
    EXPECT_EQ(keys.value().name_of(std::string("Bearer ") + kFirst), "alice");
    EXPECT_EQ(keys.value().name_of(std::string("Bearer ") + kSecond), "line 4");
    // The scheme in any letters (RFC 9110, 11.1); the key as it is.
    EXPECT_EQ(keys.value().name_of(std::string("bEARER ") + kFirst), "alice");
    for (const char* none : {"",
                             "Bearer ",
                             "Bearer sk-",
                             "Basic sk-0123456789abcdef",
                             "Bearer ignored-key-0123",
                             "sk-0123456789abcdef"}) {
        EXPECT_EQ(keys.value().name_of(none), std::nullopt) << none;
    }
}

TEST_F(ApiKeysTest, TakesOneFromTheEnvironmentWithoutAFile) {
    EXPECT_TRUE(ApiKeys::load("", "").value().empty());
    EXPECT_FALSE(ApiKeys::load("", kFirst).value().empty());
    EXPECT_THAT(ApiKeys::load("", "short").error().message, HasSubstr("AFD_API_KEY: a key of 5"));
}

TEST_F(ApiKeysTest, RefusesFilesThatGuardNothing) {
    EXPECT_THAT(error_of(write(std::string(kFirst) + "\n", 0640)), HasSubstr("chmod go= '"));
    EXPECT_THAT(error_of(write("# nobody\n")), HasSubstr("has no key; write one a line"));
    EXPECT_THAT(error_of(write("short\n")), HasSubstr("keys:1: a key of 5 characters"));
    EXPECT_THAT(error_of(write("a b c\n")), HasSubstr("keys:1: must be KEY, or NAME KEY"));
    EXPECT_THAT(error_of("/nowhere/keys"), HasSubstr("/nowhere/keys: No such file"));
    EXPECT_THAT(error_of(write(std::string(size_t{1} << 20, '#') + "\n")),
                HasSubstr("keys: 1048577 bytes; at most 1048576 are accepted"));
    const std::string pipe = directory_.path() + "/pipe";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    EXPECT_THAT(error_of(pipe), HasSubstr("pipe: not a regular file"));
    // What is wrong is said without the key.
    EXPECT_EQ(error_of(write("my-secret\n")).find("my-secret"), std::string::npos);
}

}  // namespace
}  // namespace afd::daemon
