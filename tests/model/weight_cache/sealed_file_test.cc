// SPDX-License-Identifier: Apache-2.0
//
// The file in which packed weights are kept: what is written comes back, and whatever may have
// happened to the file in between is found before a byte of it is used.

#include "model/weight_cache/sealed_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <random>
#include <thread>

#include "model/weight_cache/checksum.h"
#include "model/weight_cache/file_lock.h"
#include "model/weight_cache/weight_cache.h"
#include "model/weight_cache/whole_pages.h"
#include "tests/temporary_directory.h"

namespace afd::model {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kKey[] = "model 0123456789abcdef layer 3";

std::vector<std::vector<std::byte>> blocks_of(std::initializer_list<size_t> sizes) {
    std::mt19937 generator(5);
    std::vector<std::vector<std::byte>> blocks;
    for (const size_t size : sizes) {
        std::vector<std::byte>& block = blocks.emplace_back(size);
        for (std::byte& value : block) value = static_cast<std::byte>(generator());
    }
    return blocks;
}

std::vector<size_t> sizes_of(const std::vector<std::vector<std::byte>>& blocks) {
    std::vector<size_t> sizes;
    for (const auto& block : blocks) sizes.push_back(block.size());
    return sizes;
}

class SealedFileTest : public ::testing::Test {
  protected:
    void write_sample() {
        auto writer = SealedFileWriter::create(path_, kKey, sizes_of(blocks_));
        ASSERT_TRUE(writer.ok()) << writer.error().message;
        for (size_t i = blocks_.size(); i-- > 0;) {
            ASSERT_TRUE(writer.value().write(i, blocks_[i]).ok());
        }
        const auto sealed = writer.value().seal();
        ASSERT_TRUE(sealed.ok()) << sealed.error().message;
    }

    // Opens and verifies everything.
    Result<> read_all() const {
        AFD_ASSIGN(const SealedFile file, SealedFile::open(path_, kKey, sizes_of(blocks_)));
        for (size_t i = 0; i < blocks_.size(); ++i) AFD_TRY(file.verify(i));
        return {};
    }

    std::string bytes() const {
        std::ifstream stream(path_, std::ios::binary);
        return {std::istreambuf_iterator<char>(stream), {}};
    }

    void replace(const std::string& bytes) {
        fs::remove(path_);
        directory_.write("file", bytes);
    }

    const test::TemporaryDirectory directory_;
    const std::string path_ = directory_.path() + "/file";
    // Of awkward sizes: empty, odd, a whole page, several.
    const std::vector<std::vector<std::byte>> blocks_ = blocks_of({1000, 0, 4096, 1, 77777});
};

TEST_F(SealedFileTest, WhatIsWrittenComesBackAligned) {
    write_sample();
    const auto file = SealedFile::open(path_, kKey, sizes_of(blocks_));
    ASSERT_TRUE(file.ok()) << file.error().message;
    for (size_t i = 0; i < blocks_.size(); ++i) {
        const auto block = file.value().block(i);
        EXPECT_EQ(std::vector(block.begin(), block.end()), blocks_[i]) << i;
        EXPECT_EQ(reinterpret_cast<uintptr_t>(block.data()) % kSealedBlockAlignment, 0u);
        EXPECT_TRUE(file.value().verify(i).ok());
    }
    EXPECT_FALSE(fs::exists(path_ + ".tmp"));
    EXPECT_EQ(fs::status(path_).permissions(), fs::perms::owner_read);
}

// Goal: blocks that fill huge pages, and share them, come back in whatever order they are written.
// Method: two threads take them from a shuffled list, several times. Oracle: what was written.
TEST_F(SealedFileTest, BlocksBeyondAHugePageComeBackFromTwoThreads) {
    constexpr size_t kHuge = WholePages::kBytes;
    const auto blocks = blocks_of({kHuge + kHuge / 2 + 1, 0, kHuge - 4096, 5000, kHuge});
    std::vector<size_t> order(blocks.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::mt19937 generator(8);
    for (int round = 0; round < 6; ++round) {
        std::shuffle(order.begin(), order.end(), generator);
        auto writer = SealedFileWriter::create(path_, kKey, sizes_of(blocks));
        ASSERT_TRUE(writer.ok()) << writer.error().message;
        std::atomic<size_t> next{0};
        const auto write = [&] {
            for (size_t at = next++; at < order.size(); at = next++) {
                const Result<> written = writer.value().write(order[at], blocks[order[at]]);
                EXPECT_TRUE(written.ok()) << written.error().message;
            }
        };
        std::thread other(write);
        write();
        other.join();
        const Result<> sealed = writer.value().seal();
        ASSERT_TRUE(sealed.ok()) << sealed.error().message;
        const auto file = SealedFile::open(path_, kKey, sizes_of(blocks));
        ASSERT_TRUE(file.ok()) << file.error().message;
        for (size_t i = 0; i < blocks.size(); ++i) {
            EXPECT_TRUE(file.value().verify(i).ok()) << i;
            EXPECT_TRUE(std::ranges::equal(file.value().block(i), blocks[i])) << i;
        }
    }
}

// Goal: no damage of one byte goes unnoticed, wherever it is, padding between blocks aside.
// Method: flips every byte of the header and every 97th behind it. Oracle: what the file was.
TEST_F(SealedFileTest, EveryFlippedByteIsFound) {
    write_sample();
    const std::string good = bytes();
    const size_t first_block =
        good.find(std::string(reinterpret_cast<const char*>(blocks_[0].data()), blocks_[0].size()));
    ASSERT_EQ(first_block, 4096u);
    std::vector<bool> is_covered(good.size());
    std::fill_n(is_covered.begin(), 56 + 24 * blocks_.size() + sizeof kKey - 1, true);
    size_t offset = first_block;
    for (const auto& block : blocks_) {
        std::fill_n(is_covered.begin() + static_cast<std::ptrdiff_t>(offset), block.size(), true);
        offset += (block.size() + 4095) / 4096 * 4096;
    }
    ASSERT_EQ(offset, good.size());
    for (size_t i = 0; i < good.size(); i += i < first_block ? 1 : 97) {
        std::string bad = good;
        bad[i] = static_cast<char>(bad[i] ^ 0x10);
        replace(bad);
        EXPECT_EQ(read_all().ok(), !is_covered[i]) << "byte " << i;
    }
}

// Goal: two flips of one bit do not cancel, wherever the two words are. Method: every pair of words
// of a buffer, of which many are in one lane, with each bit that stands near the end of a word; in
// particular the highest, which a product moves nowhere. Oracle: the checksum of what was there.
TEST(Checksum, TwoFlipsOfTheSameBitAreFound) {
    std::vector<std::byte> bytes(40 * sizeof(uint64_t) + 5, std::byte{0x5a});
    const uint64_t good = Checksum::of(bytes);
    for (const std::byte bit : {std::byte{0x80}, std::byte{0x40}, std::byte{0x01}}) {
        for (const size_t place : {size_t{0}, size_t{3}, size_t{7}}) {
            for (size_t first = 0; first < 40; ++first) {
                for (size_t second = first + 1; second < 40; ++second) {
                    std::vector<std::byte> bad = bytes;
                    bad[first * sizeof(uint64_t) + place] ^= bit;
                    bad[second * sizeof(uint64_t) + place] ^= bit;
                    EXPECT_NE(Checksum::of(bad), good)
                        << "words " << first << " and " << second << ", byte " << place;
                }
            }
        }
    }
}

TEST_F(SealedFileTest, TwoFlipsOfTheHighestBitAreFound) {
    write_sample();
    std::string bad = bytes();
    const auto& block = blocks_.back();
    const size_t begin =
        bad.find(std::string(reinterpret_cast<const char*>(block.data()), block.size()));
    ASSERT_NE(begin, std::string::npos);
    for (const size_t word : {0, 8}) {
        char& highest = bad[begin + word * sizeof(uint64_t) + 7];
        highest = static_cast<char>(highest ^ 0x80);
    }
    replace(bad);
    const Result<> read = read_all();
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().message,
              path_ + ": block 4 has another checksum than when it was written");
}

TEST_F(SealedFileTest, EveryTruncationIsFound) {
    write_sample();
    const std::string good = bytes();
    for (size_t size = 0; size < good.size(); size += size < 300 ? 1 : 511) {
        replace(good.substr(0, size));
        const auto result = SealedFile::open(path_, kKey, sizes_of(blocks_));
        ASSERT_FALSE(result.ok()) << size;
        EXPECT_EQ(result.error().code, Code::kDataLoss) << result.error().message;
        EXPECT_THAT(result.error().message, HasSubstr(path_));
    }
    replace(good + "x");
    EXPECT_THAT(SealedFile::open(path_, kKey, sizes_of(blocks_)).error().message,
                HasSubstr("has " + std::to_string(good.size() + 1) + " bytes; its header says " +
                          std::to_string(good.size())));
}

// Goal: bytes that do not come are an error and no signal. Method: the file is cut short while it
// is mapped, which the kernel answers as it answers a disk that fails. Oracle: the blocks that are
// there still, and the message of the one that is not.
TEST_F(SealedFileTest, ABlockThatCannotBeReadIsAnErrorAndNoSignal) {
    write_sample();
    const auto file = SealedFile::open(path_, kKey, sizes_of(blocks_));
    ASSERT_TRUE(file.ok()) << file.error().message;
    fs::permissions(path_, fs::perms::owner_read | fs::perms::owner_write);
    // The first page of the last block stays.
    const std::span<const std::byte> last = file.value().block(4);
    const auto begin = static_cast<size_t>(last.data() - file.value().block(0).data()) + 4096;
    fs::resize_file(path_, begin + 4096);
    for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(file.value().verify(i).ok()) << i;
    const Result<> verified = file.value().verify(4);
    ASSERT_FALSE(verified.ok());
    EXPECT_EQ(verified.error().code, Code::kDataLoss);
    EXPECT_EQ(verified.error().message,
              path_ + ": block 4 cannot be read: the disk fails, or the file was cut short");
}

TEST_F(SealedFileTest, ACondemnedFileIsNotOpenedAgainUntilItIsWrittenAnew) {
    write_sample();
    EXPECT_FALSE(SealedFile::is_condemned(path_));
    const auto old = SealedFile::open(path_, kKey, sizes_of(blocks_));
    ASSERT_TRUE(old.ok());
    old.value().condemn();
    EXPECT_TRUE(SealedFile::is_condemned(path_));
    const Result<> again = read_all();
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.error().code, Code::kDataLoss);
    EXPECT_THAT(again.error().message, HasSubstr(path_ + ": a worker has found it damaged"));
    write_sample();
    // The mapping of the old file must not condemn the new one, which has its name.
    old.value().condemn();
    EXPECT_FALSE(SealedFile::is_condemned(path_));
    EXPECT_TRUE(read_all().ok());
    EXPECT_FALSE(SealedFile::is_condemned(directory_.path() + "/nothing"));
}

TEST_F(SealedFileTest, AForeignFileIsNamed) {
    write_sample();
    const auto other_key = SealedFile::open(path_, "model ffff layer 3", sizes_of(blocks_));
    ASSERT_FALSE(other_key.ok());
    EXPECT_EQ(other_key.error().code, Code::kFailedPrecondition);
    EXPECT_THAT(other_key.error().message,
                HasSubstr("holds \"model 0123456789abcdef layer 3\", not \"model ffff layer 3\""));
    std::vector<size_t> sizes = sizes_of(blocks_);
    sizes[2] += 1;
    EXPECT_THAT(SealedFile::open(path_, kKey, sizes).error().message, HasSubstr("other sizes"));
    std::string older = bytes();
    older[8] = 1;
    replace(older);
    EXPECT_THAT(SealedFile::open(path_, kKey, sizes_of(blocks_)).error().message,
                HasSubstr("format version 1, not 2"));
    replace(std::string(5000, 'G'));
    EXPECT_THAT(SealedFile::open(path_, kKey, sizes).error().message,
                HasSubstr("not a weight cache file"));
    fs::remove(path_);
    EXPECT_EQ(SealedFile::open(path_, kKey, sizes).error().code, Code::kNotFound);
    fs::create_directory(path_);
    EXPECT_THAT(SealedFile::open(path_, kKey, sizes).error().message,
                HasSubstr("not a regular file"));
}

TEST_F(SealedFileTest, AWriterThatGivesUpLeavesNothing) {
    {
        auto writer = SealedFileWriter::create(path_, kKey, sizes_of(blocks_));
        ASSERT_TRUE(writer.ok());
        ASSERT_TRUE(writer.value().write(0, blocks_[0]).ok());
        EXPECT_TRUE(fs::exists(path_ + ".tmp"));
    }
    EXPECT_TRUE(fs::is_empty(directory_.path()));
    // What a killed writer left is replaced.
    directory_.write("file.tmp", "rubbish");
    write_sample();
    EXPECT_TRUE(read_all().ok());
}

// Goal: of two who pack the same file, since the lock of the first was removed, the first takes
// nothing from the second. Method: the temporary file is another's by the time that it is sealed,
// or given up. Oracle: that file, and the error.
TEST_F(SealedFileTest, LeavesTheTemporaryFileOfAnotherAlone) {
    for (const bool is_sealed : {true, false}) {
        auto writer = std::optional(SealedFileWriter::create(path_, kKey, sizes_of(blocks_)));
        ASSERT_TRUE(writer->ok()) << writer->error().message;
        fs::remove(path_ + ".tmp");
        directory_.write("file.tmp", "of another");
        if (is_sealed) {
            const Result<> sealed = writer->value().seal();
            ASSERT_FALSE(sealed.ok());
            EXPECT_EQ(sealed.error().code, Code::kFailedPrecondition);
            EXPECT_EQ(sealed.error().message,
                      path_ +
                          ".tmp: was replaced while it was written: another process packs the same "
                          "file. Remove no .lock file while programs use the weight cache");
        }
        writer.reset();
        EXPECT_FALSE(fs::exists(path_));
        std::ifstream stream(path_ + ".tmp");
        EXPECT_EQ(std::string(std::istreambuf_iterator<char>(stream), {}), "of another");
    }
}

// A mapping outlives its name: replacing a file takes nothing from who uses it.
TEST_F(SealedFileTest, AMappingOutlivesReplacementAndRemoval) {
    write_sample();
    const auto file = SealedFile::open(path_, kKey, sizes_of(blocks_));
    ASSERT_TRUE(file.ok());
    write_sample();
    fs::remove(path_);
    for (size_t i = 0; i < blocks_.size(); ++i) EXPECT_TRUE(file.value().verify(i).ok());
}

// Goal: no room is an error, not a signal. Method: RLIMIT_FSIZE, which is what a test without a
// file system of its own can fill.
TEST_F(SealedFileTest, NoRoomIsAnErrorThatSaysHowMuchIsNeeded) {
    const auto is_refused = [this] {
        ::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{1 << 16, 1 << 16};
        if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
        const std::vector<size_t> sizes = {size_t{3} << 20};
        const auto writer = SealedFileWriter::create(path_, kKey, sizes);
        if (writer.ok() || fs::exists(path_ + ".tmp")) return 3;
        if (writer.error().code != Code::kResourceExhausted) return 4;
        return writer.error().message.find("4 MiB are needed") == std::string::npos ? 5 : 0;
    };
    EXPECT_EXIT(::_exit(is_refused()), ::testing::ExitedWithCode(0), "");
}

TEST(FileLock, OneHolderAtATime) {
    const test::TemporaryDirectory directory;
    const std::string path = directory.path() + "/lock";
    {
        auto first = FileLock::try_acquire(path);
        ASSERT_TRUE(first.ok() && first.value().has_value());
        const auto second = FileLock::try_acquire(path);
        ASSERT_TRUE(second.ok());
        EXPECT_FALSE(second.value().has_value());
    }
    EXPECT_TRUE(FileLock::try_acquire(path).value().has_value());
    EXPECT_THAT(FileLock::try_acquire(directory.path() + "/none/lock").error().message,
                HasSubstr("none/lock: opening: No such file or directory"));
}

TEST(WeightCache, MakesItsDirectoriesPrivate) {
    const test::TemporaryDirectory directory;
    const std::string path = directory.path() + "/some/where/afd";
    EXPECT_TRUE(WeightCache::is_usable(path));
    EXPECT_FALSE(fs::exists(directory.path() + "/some")) << "only looked at";
    const auto cache = WeightCache::open(path);
    ASSERT_TRUE(cache.ok()) << cache.error().message;
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
    EXPECT_TRUE(WeightCache::is_usable(path));
    const auto folder = cache.value().folder("model");
    ASSERT_TRUE(folder.ok());
    EXPECT_EQ(folder.value(), path + "/model");
    EXPECT_EQ(fs::status(path + "/model").permissions(), fs::perms::owner_all);
    EXPECT_FALSE(WeightCache::open("").value().is_on());
}

TEST(WeightCache, RefusesADirectoryThatOthersCanWrite) {
    const test::TemporaryDirectory directory;
    const std::string path = directory.path() + "/open";
    fs::create_directory(path);
    ASSERT_EQ(::chmod(path.c_str(), 0777), 0);
    const auto cache = WeightCache::open(path);
    ASSERT_FALSE(cache.ok());
    EXPECT_FALSE(WeightCache::is_usable(path));
    EXPECT_EQ(cache.error().code, Code::kPermissionDenied);
    EXPECT_THAT(cache.error().message,
                AllOf(HasSubstr("writable for others"), HasSubstr("chmod 700")));
    const std::string file = directory.write("plain", "x");
    EXPECT_THAT(WeightCache::open(file).error().message, HasSubstr("not a directory"));
    EXPECT_THAT(WeightCache::open(file + "/below").error().message,
                HasSubstr("set weight_cache to"));
    const std::string program = directory.write("program", "x");
    ASSERT_EQ(::chmod(program.c_str(), 0700), 0);
    for (const std::string& wrong :
         {file, file + "/below", program + "/below", program + "/far/below", std::string()}) {
        EXPECT_FALSE(WeightCache::is_usable(wrong)) << wrong;
    }
}

// Goal: the message says why a parent could not be made, and not that it is not there then. Method:
// a file system of the kernel's, where nobody makes a directory, not even root. Oracle: mkdir().
TEST(WeightCache, SaysWhyAParentCannotBeMade) {
    struct statfs sys {};
    ASSERT_EQ(::statfs("/sys", &sys), 0) << std::strerror(errno);
    ASSERT_EQ(sys.f_type, SYSFS_MAGIC) << "mount -t sysfs sysfs /sys";
    const std::string parent = "/sys/afd-weight-cache-test";
    const int error = ::mkdir(parent.c_str(), 0700) == 0 ? 0 : errno;
    ASSERT_NE(error, 0) << parent << " is there now";
    const auto cache = WeightCache::open(parent + "/below");
    ASSERT_FALSE(cache.ok());
    EXPECT_EQ(cache.error().message,
              parent + ": creating: " + std::strerror(error) +
                  "; set weight_cache to a directory of yours, or to off");
}

TEST(WeightCache, DefaultDirectoryFollowsTheEnvironment) {
    const auto with = [](const char* cache_home, const char* home) {
        cache_home != nullptr ? ::setenv("XDG_CACHE_HOME", cache_home, 1)
                              : ::unsetenv("XDG_CACHE_HOME");
        home != nullptr ? ::setenv("HOME", home, 1) : ::unsetenv("HOME");
        return default_weight_cache_directory();
    };
    EXPECT_EQ(with("/var/cache", "/home/me"), "/var/cache/afd");
    EXPECT_EQ(with(nullptr, "/home/me"), "/home/me/.cache/afd");
    EXPECT_EQ(with("relative", nullptr), "");
}

}  // namespace
}  // namespace afd::model
