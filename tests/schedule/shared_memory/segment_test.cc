// SPDX-License-Identifier: Apache-2.0
#include "schedule/shared_memory/segment.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

namespace afd::schedule {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Every test uses instance names of its own process and leaves nothing behind.
class SegmentTest : public ::testing::Test {
  protected:
    SegmentTest() : instance_("segtest" + std::to_string(::getpid())) {}
    ~SegmentTest() override {
        Segment::remove_leftovers(instance_);
        Segment::remove_leftovers(longer());
    }

    std::string longer() const { return instance_ + "-b"; }
    std::string name(uint64_t instance_id = 1, const std::string& instance = "") const {
        return segment_name(segment_prefix(instance.empty() ? instance_ : instance, instance_id),
                            Role::kFfn,
                            0,
                            SegmentKind::kWindow);
    }
    static std::string path(const std::string& segment) { return "/dev/shm" + segment; }

    std::string instance_;
};

TEST(SegmentName, IsBuiltFromInstanceRoleAndKind) {
    const std::string prefix = segment_prefix("demo", 0x00ab);
    EXPECT_EQ(prefix, "/afd-demo-00000000000000ab");
    EXPECT_EQ(segment_name(prefix, Role::kFfn, 3, SegmentKind::kWindow),
              "/afd-demo-00000000000000ab-ffn3-window");
    EXPECT_EQ(segment_name(prefix, Role::kAttention, 12, SegmentKind::kControl),
              "/afd-demo-00000000000000ab-attn12-control");
    EXPECT_EQ(segment_name(prefix, Role::kAttention, 0, SegmentKind::kMetrics),
              "/afd-demo-00000000000000ab-attn0-metrics");
}

TEST_F(SegmentTest, IsCreatedForThisUserOnlyWithItsBlocksReserved) {
    const Result<Segment> segment = Segment::create(name(), 1 << 20);
    ASSERT_TRUE(segment.ok()) << segment.error().message;
    struct stat stats {};
    ASSERT_EQ(::stat(path(name()).c_str(), &stats), 0);
    EXPECT_EQ(stats.st_mode & 07777, 0600u);
    EXPECT_EQ(stats.st_size, 1 << 20);
    EXPECT_GE(stats.st_blocks * 512, 1 << 20);
    EXPECT_EQ(segment.value().size(), uint64_t{1} << 20);
    const std::byte* bytes = segment.value().const_data();
    EXPECT_TRUE(
        std::all_of(bytes, bytes + (1 << 20), [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(SegmentTest, IsCreatedExclusively) {
    const Result<Segment> first = Segment::create(name(), 4096);
    ASSERT_TRUE(first.ok());
    const Result<Segment> second = Segment::create(name(), 4096);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, Code::kAlreadyExists);
    EXPECT_THAT(second.error().message, HasSubstr(name()));
    EXPECT_TRUE(std::filesystem::exists(path(name()))) << "the loser removed the winner's segment";
}

// Goal: a full /dev/shm is a clear error at the start. Method: ask for one byte more than it has
// in total. Oracle: the message names the size and what is free, and no file is left.
TEST_F(SegmentTest, SaysWhatIsMissingWhenSharedMemoryIsFull) {
    struct statvfs stats {};
    ASSERT_EQ(::statvfs("/dev/shm", &stats), 0);
    const uint64_t size_bytes = uint64_t{stats.f_blocks} * stats.f_frsize + 1;
    const Result<Segment> segment = Segment::create(name(), size_bytes);
    ASSERT_FALSE(segment.ok());
    EXPECT_EQ(segment.error().code, Code::kResourceExhausted);
    EXPECT_THAT(
        segment.error().message,
        AllOf(HasSubstr(std::to_string(size_bytes)), HasSubstr("/dev/shm"), HasSubstr("free")));
    EXPECT_FALSE(std::filesystem::exists(path(name())));
}

TEST_F(SegmentTest, IsSharedByItsAttachers) {
    Result<Segment> created = Segment::create(name(), 8192);
    ASSERT_TRUE(created.ok());
    Result<Segment> writer = Segment::attach(name(), 8192, Segment::Access::kReadWrite);
    Result<Segment> reader = Segment::attach(name(), 8192, Segment::Access::kReadOnly);
    ASSERT_TRUE(writer.ok() && reader.ok());
    ASSERT_NE(writer.value().data(), reader.value().const_data());
    writer.value().data()[8191] = std::byte{42};
    EXPECT_EQ(reader.value().const_data()[8191], std::byte{42});
    EXPECT_EQ(created.value().const_data()[8191], std::byte{42});
}

TEST_F(SegmentTest, KeepsItsMappingWhenItsNameIsUnlinked) {
    Result<Segment> segment = Segment::create(name(), 4096);
    ASSERT_TRUE(segment.ok());
    EXPECT_TRUE(Segment::unlink(name()));
    EXPECT_FALSE(Segment::unlink(name()));
    segment.value().data()[0] = std::byte{1};
    const Result<Segment> late = Segment::attach(name(), 4096, Segment::Access::kReadOnly);
    ASSERT_FALSE(late.ok());
    EXPECT_EQ(late.error().code, Code::kNotFound);
    EXPECT_THAT(late.error().message, HasSubstr(name()));
}

TEST_F(SegmentTest, RefusesAttachersThatExpectAnotherSize) {
    const Result<Segment> segment = Segment::create(name(), 4096);
    ASSERT_TRUE(segment.ok());
    const Result<Segment> other = Segment::attach(name(), 8192, Segment::Access::kReadOnly);
    ASSERT_FALSE(other.ok());
    EXPECT_EQ(other.error().code, Code::kFailedPrecondition);
    EXPECT_THAT(other.error().message, AllOf(HasSubstr("4096"), HasSubstr("8192")));
}

TEST_F(SegmentTest, LetsTheKernelRefuseStoresThroughAReadOnlyMapping) {
    const Result<Segment> segment = Segment::create(name(), 4096);
    ASSERT_TRUE(segment.ok());
    const Result<Segment> reader = Segment::attach(name(), 4096, Segment::Access::kReadOnly);
    ASSERT_TRUE(reader.ok());
    EXPECT_DEATH(*const_cast<std::byte*>(reader.value().const_data()) = std::byte{1}, "");
    EXPECT_DEATH(reader.value().data(), "not mapped read-write");
}

TEST_F(SegmentTest, SealedIsThisUsersAloneAndKeepsItsSize) {
    const Result<Segment> segment = Segment::create_sealed(name(), 1 << 20);
    ASSERT_TRUE(segment.ok()) << segment.error().message;
    struct stat stats {};
    ASSERT_EQ(::stat(path(name()).c_str(), &stats), 0);
    EXPECT_EQ(stats.st_mode & 07777, 0600u);
    EXPECT_EQ(stats.st_size, 1 << 20);
    EXPECT_GE(stats.st_blocks * 512, 1 << 20);
    for (const off_t bytes : {0, 4096, 2 << 20}) {
        EXPECT_EQ(::ftruncate(segment.value().descriptor(), bytes), -1);
        EXPECT_EQ(errno, EPERM);
        EXPECT_EQ(::truncate(path(name()).c_str(), bytes), -1);
    }
    const Result<Segment> second = Segment::create_sealed(name(), 4096);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, Code::kAlreadyExists);
}

// Goal: the name of a sealed segment is a convenience. Method: attach by name and by descriptor,
// remove the name, attach by descriptor again. Oracle: all see one memory.
TEST_F(SegmentTest, SealedIsReachedByItsDescriptorWithoutItsName) {
    const Result<Segment> created = Segment::create_sealed(name(), 8192);
    ASSERT_TRUE(created.ok());
    const Result<Segment> named = Segment::attach(name(), 8192, Segment::Access::kReadWrite);
    ASSERT_TRUE(named.ok()) << named.error().message;
    named.value().data()[8191] = std::byte{42};
    EXPECT_TRUE(Segment::unlink(name()));
    EXPECT_EQ(Segment::attach(name(), 8192, Segment::Access::kReadOnly).error().code,
              Code::kNotFound);
    const int fd = created.value().descriptor();
    const Result<Segment> reader = Segment::attach(fd, name(), 8192, Segment::Access::kReadOnly);
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    EXPECT_EQ(reader.value().const_data()[8191], std::byte{42});
    EXPECT_DEATH(*const_cast<std::byte*>(reader.value().const_data()) = std::byte{1}, "");
    const Result<Segment> other = Segment::attach(fd, name(), 4096, Segment::Access::kReadOnly);
    EXPECT_THAT(other.error().message, AllOf(HasSubstr("8192"), HasSubstr("4096")));
}

// Goal: neither a descriptor nor a link brings in a file that can be shortened. Method: a named
// segment, over its descriptor and over a link in the place of another segment.
TEST_F(SegmentTest, RefusesWhatIsNotSealedByDescriptorOrLink) {
    ASSERT_TRUE(Segment::create(name(1), 4096).ok());
    const int fd = ::open(path(name(1)).c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(::symlink(path(name(1)).c_str(), path(name(2)).c_str()), 0);
    for (const auto& refused :
         {Segment::attach(fd, name(1), 4096, Segment::Access::kReadWrite).error(),
          Segment::attach(name(2), 4096, Segment::Access::kReadWrite).error()}) {
        EXPECT_EQ(refused.code, Code::kPermissionDenied);
        EXPECT_THAT(refused.message, HasSubstr("no sealed memory file of this user"));
    }
    ::close(fd);
}

// Goal: segments tell whose they are. Method: sealed ones of this process, of a number without a
// process, and named ones. Oracle: find_owner() finds the first kind alone, and only while it
// lives.
TEST_F(SegmentTest, AnOwnerIsFoundWhileItHasItsSegmentsOpen) {
    ASSERT_TRUE(Segment::create(name(1), 4096).ok());
    ASSERT_EQ(::symlink("/proc/4194305/fd/3", path(name(2)).c_str()), 0);
    // An open file of a living process, but another one: its number was used again.
    const std::string other = "/proc/" + std::to_string(::getpid()) + "/fd/0";
    ASSERT_EQ(::symlink(other.c_str(), path(name(3)).c_str()), 0);
    EXPECT_EQ(Segment::find_owner(instance_), std::nullopt);
    {
        const Result<Segment> sealed = Segment::create_sealed(name(4), 4096);
        ASSERT_TRUE(sealed.ok());
        EXPECT_EQ(Segment::find_owner(instance_), ::getpid());
        EXPECT_EQ(Segment::find_owner(longer()), std::nullopt);
    }
    EXPECT_EQ(Segment::find_owner(instance_), std::nullopt);
    EXPECT_EQ(Segment::remove_leftovers(instance_), 4u);
}

TEST_F(SegmentTest, SealedSaysWhatIsMissingWhenMemoryIsShort) {
    const uint64_t size_bytes = uint64_t{1} << 45;
    const Result<Segment> segment = Segment::create_sealed(name(), size_bytes);
    ASSERT_FALSE(segment.ok());
    EXPECT_EQ(segment.error().code, Code::kResourceExhausted);
    EXPECT_THAT(segment.error().message,
                AllOf(HasSubstr(std::to_string(size_bytes) + " bytes of memory but "),
                      HasSubstr("are available")));
    EXPECT_FALSE(std::filesystem::is_symlink(path(name())));
}

// Goal: prefaulting never stores, since a peer may be writing. Method: contents before and after,
// through both kinds of mapping, on ranges that are no whole pages. Oracle: unchanged bytes.
TEST_F(SegmentTest, PrefaultsWithoutStoring) {
    Result<Segment> segment = Segment::create(name(), 3 * 4096);
    ASSERT_TRUE(segment.ok());
    std::byte* bytes = segment.value().data();
    for (int i = 0; i < 3 * 4096; ++i) bytes[i] = static_cast<std::byte>(i * 7);
    for (const auto access : {Segment::Access::kReadOnly, Segment::Access::kReadWrite}) {
        const Result<Segment> attached = Segment::attach(name(), 3 * 4096, access);
        ASSERT_TRUE(attached.ok());
        for (const auto& [offset, size] :
             {std::pair<uint64_t, uint64_t>{0, 3 * 4096}, {4000, 200}, {5000, 1}, {0, 0}}) {
            const Result<> result = attached.value().prefault(offset, size);
            EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
        }
    }
    for (int i = 0; i < 3 * 4096; ++i) ASSERT_EQ(bytes[i], static_cast<std::byte>(i * 7)) << i;
}

// Goal: leftovers of a dead afdd go, everything else stays. Method: segments of the same instance
// under two random parts, of an instance whose name begins with it, and a file that only looks
// alike. Oracle: which files exist.
TEST_F(SegmentTest, RemovesLeftoversOfExactlyOneInstance) {
    const std::string look_alike = "/dev/shm/afd-" + instance_ + "-0000000000000001-notes";
    ASSERT_TRUE(Segment::create(name(1), 4096).ok());
    ASSERT_TRUE(Segment::create(name(2), 4096).ok());
    ASSERT_TRUE(Segment::create(name(1, longer()), 4096).ok());
    ASSERT_TRUE(std::filesystem::create_directory(look_alike));
    EXPECT_EQ(Segment::remove_leftovers(instance_), 2u);
    EXPECT_FALSE(std::filesystem::exists(path(name(1))));
    EXPECT_FALSE(std::filesystem::exists(path(name(2))));
    EXPECT_TRUE(std::filesystem::exists(path(name(1, longer()))));
    EXPECT_TRUE(std::filesystem::remove(look_alike));
    EXPECT_EQ(Segment::remove_leftovers(longer()), 1u);
}

// An instance may be named like another one's prefix, random part included.
TEST_F(SegmentTest, RemovesNothingOfAnInstanceNamedLikeAPrefix) {
    const std::string nested = instance_ + "-0123456789abcdef";
    ASSERT_TRUE(Segment::create(name(1, nested), 4096).ok());
    EXPECT_EQ(Segment::remove_leftovers(instance_), 0u);
    EXPECT_EQ(Segment::remove_leftovers(nested), 1u);
}

}  // namespace
}  // namespace afd::schedule
