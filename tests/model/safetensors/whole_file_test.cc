// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors/whole_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/file_size_limit.h"
#include "tests/temporary_directory.h"

namespace afd::model {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
}

std::string text_of(const std::string& path) {
    std::ifstream stream(path);
    return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<std::string> names_in(const std::string& directory) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory)) {
        names.push_back(entry.path().filename());
    }
    return names;
}

TEST(WholeFile, TakesItsPlaceWhenItIsComplete) {
    const test::TemporaryDirectory directory;
    const std::string path = directory.write("out", "old");
    {
        auto file = WholeFile::create(path);
        ASSERT_TRUE(file.ok()) << file.error().message;
        ASSERT_TRUE(file.value().write(bytes_of("a new ")).ok());
        ASSERT_TRUE(file.value().write(bytes_of("text")).ok());
        EXPECT_EQ(text_of(path), "old");
        ASSERT_TRUE(file.value().commit().ok());
    }
    EXPECT_EQ(text_of(path), "a new text");
    EXPECT_THAT(names_in(directory.path()), ElementsAre("out"));
}

// As in two containers that share a volume, whose processes may have the same id. Oracle: whoever
// comes last has the place, with all of its own bytes and none of the other's.
TEST(WholeFile, TwoOfOnePathDoNotMeet) {
    const test::TemporaryDirectory directory;
    const std::string path = directory.path("out");
    auto first = WholeFile::create(path);
    ASSERT_TRUE(first.ok()) << first.error().message;
    ASSERT_TRUE(first.value().write(bytes_of("the first, ")).ok());
    auto second = WholeFile::create(path);
    ASSERT_TRUE(second.ok()) << second.error().message;
    ASSERT_TRUE(second.value().write(bytes_of("the second, ")).ok());
    ASSERT_TRUE(first.value().write(bytes_of("whole")).ok());
    ASSERT_TRUE(first.value().commit().ok());
    EXPECT_EQ(text_of(path), "the first, whole");
    ASSERT_TRUE(second.value().write(bytes_of("whole")).ok());
    ASSERT_TRUE(second.value().commit().ok());
    EXPECT_EQ(text_of(path), "the second, whole");
    EXPECT_THAT(names_in(directory.path()), ElementsAre("out"));
}

TEST(WholeFile, HasTheModeOfAnyNewFile) {
    const test::TemporaryDirectory directory;
    const mode_t before = ::umask(027);
    const auto written = write_whole_file(directory.path("out"), bytes_of("text"));
    ::umask(before);
    ASSERT_TRUE(written.ok()) << written.error().message;
    EXPECT_EQ(fs::status(directory.path("out")).permissions(), fs::perms(0640));
}

TEST(WholeFile, LeavesWhatWasThereIfItIsNotCommitted) {
    const test::TemporaryDirectory directory;
    const std::string path = directory.write("out", "old");
    {
        auto file = WholeFile::create(path);
        ASSERT_TRUE(file.ok()) << file.error().message;
        ASSERT_TRUE(file.value().write(bytes_of("half of")).ok());
    }
    EXPECT_EQ(text_of(path), "old");
    EXPECT_THAT(names_in(directory.path()), ElementsAre("out"));
}

TEST(WholeFile, LeavesWhatWasThereIfTheDiskIsFull) {
    const test::TemporaryDirectory directory;
    const std::string path = directory.write("out", "old");
    Result<> written;
    {
        const test::FileSizeLimit limit(10);
        written = write_whole_file(path, bytes_of(std::string(100, 'x')));
    }
    ASSERT_FALSE(written.ok());
    EXPECT_EQ(written.error().code, Code::kResourceExhausted);
    EXPECT_THAT(written.error().message, HasSubstr(path + ": writing: File too large"));
    EXPECT_EQ(text_of(path), "old");
    EXPECT_THAT(names_in(directory.path()), ElementsAre("out"));
}

// Below a file there is no place, for root neither.
TEST(WholeFile, SaysAtOnceThatThereIsNoPlace) {
    const test::TemporaryDirectory directory;
    const std::string path = directory.write("file", "") + "/out";
    const auto file = WholeFile::create(path);
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(file.error().code, Code::kNotFound);
    EXPECT_EQ(file.error().message, path + ": cannot be written: Not a directory");
    EXPECT_THAT(WholeFile::create(directory.path()).error().message,
                HasSubstr(": cannot be written: Is a directory"));
}

TEST(WholeFile, FollowsALinkAndKeepsIt) {
    const test::TemporaryDirectory directory;
    fs::create_directory(directory.path("elsewhere"));
    const std::string place = directory.write("elsewhere/out", "old");
    fs::create_symlink(place, directory.path("link"));
    ASSERT_TRUE(write_whole_file(directory.path("link"), bytes_of("new")).ok());
    EXPECT_TRUE(fs::is_symlink(directory.path("link")));
    EXPECT_EQ(text_of(place), "new");
    EXPECT_THAT(names_in(directory.path("elsewhere")), ElementsAre("out"));
}

TEST(WholeFile, FollowsALinkToWhatIsNotThereYet) {
    const test::TemporaryDirectory directory;
    fs::create_directory(directory.path("elsewhere"));
    fs::create_symlink("elsewhere/out", directory.path("link"));
    ASSERT_TRUE(write_whole_file(directory.path("link"), bytes_of("new")).ok());
    EXPECT_TRUE(fs::is_symlink(directory.path("link")));
    EXPECT_EQ(text_of(directory.path("elsewhere/out")), "new");
}

// A file in the place of /dev/full would be an accident.
TEST(WholeFile, DoesNotReplaceADevice) {
    const auto written = write_whole_file("/dev/full", bytes_of("text"));
    ASSERT_FALSE(written.ok());
    EXPECT_EQ(written.error().message, "/dev/full: writing: No space left on device");
    ASSERT_TRUE(write_whole_file("/dev/null", bytes_of("text")).ok());
    EXPECT_TRUE(fs::is_character_file("/dev/null"));
    EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

}  // namespace
}  // namespace afd::model
