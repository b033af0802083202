// SPDX-License-Identifier: Apache-2.0
// Goal: WholePages writes what it is given, a huge page with each call, whatever the parts are.
// Method: random cuts of a file, given in random order by several threads; the writes are looked at
// as the file grows. Oracle: the bytes that were given; a device that takes none.

#include "model/weight_cache/whole_pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/temporary_directory.h"

namespace afd::model {
namespace {

constexpr uint64_t kPage = WholePages::kBytes;

std::vector<std::byte> random_bytes(size_t count) {
    std::mt19937_64 generator(3);
    std::vector<std::byte> bytes(count);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(generator() >> 7 | 1);
    return bytes;
}

class WholePagesTest : public ::testing::Test {
  protected:
    WholePagesTest() : fd_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {}
    ~WholePagesTest() override { ::close(fd_); }

    uint64_t file_bytes() const {
        struct stat status {};
        EXPECT_EQ(::fstat(fd_, &status), 0);
        return static_cast<uint64_t>(status.st_size);
    }
    std::vector<std::byte> read_all() const {
        std::vector<std::byte> bytes(file_bytes());
        std::ifstream(path_, std::ios::binary)
            .read(reinterpret_cast<char*>(bytes.data()),
                  static_cast<std::streamsize>(bytes.size()));
        return bytes;
    }

    test::TemporaryDirectory directory_;
    std::string path_ = directory_.path("pages");
    int fd_;
};

TEST_F(WholePagesTest, PartsOfAPageAreWrittenWithTheLastOfThem) {
    const std::vector<std::byte> bytes = random_bytes(3 * kPage + 777);
    const std::span all(bytes);
    WholePages pages(fd_, bytes.size());
    // From inside the first page to inside the third: only the second is whole.
    EXPECT_EQ(pages.write(100, all.subspan(100, 2 * kPage), 2 * kPage), 0);
    EXPECT_EQ(file_bytes(), 2 * kPage);
    EXPECT_EQ(read_all()[0], std::byte{0});
    EXPECT_EQ(pages.write(0, all.first(100), 100), 0);
    EXPECT_EQ(read_all()[0], bytes[0]);
    EXPECT_EQ(file_bytes(), 2 * kPage);
    EXPECT_EQ(pages.write(2 * kPage + 100, all.subspan(2 * kPage + 100), kPage + 677), 0);
    EXPECT_EQ(read_all(), bytes);
}

TEST_F(WholePagesTest, ZerosFollowWhatIsShorterThanItsPlace) {
    WholePages pages(fd_, 2 * kPage);
    const std::vector<std::byte> bytes = random_bytes(kPage + 5);
    EXPECT_EQ(pages.write(0, bytes, 2 * kPage), 0);
    std::vector<std::byte> expected = bytes;
    expected.resize(2 * kPage);
    EXPECT_EQ(read_all(), expected);
}

TEST_F(WholePagesTest, ThreadsGiveAFileInAnyOrder) {
    const std::vector<std::byte> bytes = random_bytes(9 * kPage + 12345);
    std::mt19937 generator(11);
    std::vector<std::pair<uint64_t, uint64_t>> parts;
    for (uint64_t at = 0; at < bytes.size();) {
        const uint64_t count = std::min<uint64_t>(1 + generator() % kPage, bytes.size() - at);
        parts.emplace_back(at, count);
        at += count;
    }
    std::shuffle(parts.begin(), parts.end(), generator);
    WholePages pages(fd_, bytes.size());
    std::atomic<size_t> next{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            for (size_t part = next++; part < parts.size(); part = next++) {
                const auto [at, count] = parts[part];
                EXPECT_EQ(pages.write(at, std::span(bytes).subspan(at, count), count), 0);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(read_all(), bytes);
}

TEST(WholePages, WhoCompletesAPageLearnsThatItCouldNotBeWritten) {
    const int fd = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    WholePages pages(fd, 2 * kPage);
    const std::vector<std::byte> bytes = random_bytes(kPage);
    EXPECT_EQ(pages.write(kPage, bytes, kPage), ENOSPC);
    EXPECT_EQ(pages.write(0, std::span(bytes).first(9), 9), 0);
    EXPECT_EQ(pages.write(9, std::span(bytes).subspan(9), kPage - 9), ENOSPC);
    ::close(fd);
}

}  // namespace
}  // namespace afd::model
