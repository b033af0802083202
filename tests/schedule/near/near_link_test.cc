// SPDX-License-Identifier: Apache-2.0
//
// Goal: messages between two workers of one host arrive whole, in order and once; whoever dies is
// missed; and a peer that writes what it likes costs its link and nothing else. Method: two ends in
// one process, as threads where that matters; a child that is killed; random stores into the shared
// memory while messages pass. Oracle: near_link.h, and the bytes that were sent.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "schedule/near/near_door.h"
#include "schedule/near/near_socket.h"

namespace afd::schedule {
namespace {

using testing::HasSubstr;

std::vector<std::byte> random_bytes(std::mt19937& random, size_t count) {
    std::vector<std::byte> bytes(count);
    for (std::byte& byte : bytes) byte = std::byte(random() & 0xff);
    return bytes;
}

class Recorder final : public NearReceiver {
  public:
    void on_message(std::span<const std::byte> header,
                    std::span<const std::byte> payload) override {
        headers.emplace_back(header.begin(), header.end());
        payloads.emplace_back(payload.begin(), payload.end());
    }
    std::vector<std::vector<std::byte>> headers;
    std::vector<std::vector<std::byte>> payloads;
};

void await(const std::function<bool()>& holds) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!holds()) {
        ASSERT_LT(std::chrono::steady_clock::now(), deadline);
        std::this_thread::yield();
    }
}

// One worker that listens and one that has connected to it.
class NearLinkTest : public testing::Test {
  protected:
    NearLinkTest() {
        from_ = NearLink::connect(door_->address()).value();
        await([&] {
            for (auto& link : door_->look(0)) to_ = std::move(link);
            return to_ != nullptr;
        });
        to_->on_socket();
    }

    std::unique_ptr<NearDoor> door_ = NearDoor::make(true, 64).value();
    std::unique_ptr<NearLink> from_;
    std::unique_ptr<NearLink> to_;
};

TEST_F(NearLinkTest, CarriesMessagesOfAllSizesBothWays) {
    std::mt19937 random(3);
    std::vector<std::vector<std::byte>> sent;
    for (const size_t bytes : {size_t{0},
                               size_t{1},
                               size_t{31},
                               size_t{32},
                               size_t{14336},
                               NearLink::kRingBytes,
                               5 * NearLink::kRingBytes + 17}) {
        sent.push_back(random_bytes(random, bytes));
    }
    for (int i = 0; i < 200; ++i) sent.push_back(random_bytes(random, random() % 40'000));
    const auto run = [&](NearLink& link, Recorder& got) {
        std::vector<uint32_t> num_in_flight(sent.size(), 0);
        for (size_t i = 0; i < sent.size(); ++i) {
            const auto header = std::as_bytes(std::span(&i, 1));
            link.send({header, sent[i], &num_in_flight[i]});
            // The header is the sender's no longer than the call.
        }
        await([&] {
            link.take(got);
            return got.payloads.size() == sent.size() &&
                   std::ranges::all_of(num_in_flight, [](uint32_t count) { return count == 0; });
        });
    };
    Recorder at_to;
    Recorder at_from;
    std::thread other([&] { run(*to_, at_to); });
    run(*from_, at_from);
    other.join();
    for (const Recorder* got : {&at_to, &at_from}) {
        EXPECT_EQ(got->payloads, sent);
        for (size_t i = 0; i < sent.size(); ++i) {
            EXPECT_EQ(std::memcmp(got->headers[i].data(), &i, sizeof(i)), 0);
        }
    }
}

TEST_F(NearLinkTest, WakesAReaderThatSleepsAndAWriterThatHasNoRoom) {
    const std::vector<std::byte> large(3 * NearLink::kRingBytes);
    const size_t header = 1;
    uint32_t num_in_flight = 0;
    const auto is_rung = [](const NearLink& link) {
        pollfd event{link.socket(), POLLIN, 0};
        return ::poll(&event, 1, 0) == 1;
    };
    EXPECT_FALSE(to_->arm());
    EXPECT_FALSE(is_rung(*to_));
    from_->send({std::as_bytes(std::span(&header, 1)), large, &num_in_flight});
    EXPECT_TRUE(is_rung(*to_));
    EXPECT_EQ(num_in_flight, 1U);
    to_->on_socket();
    to_->disarm();
    EXPECT_FALSE(is_rung(*to_));
    EXPECT_FALSE(from_->arm()) << "the ring is full";
    Recorder got;
    to_->take(got);
    EXPECT_TRUE(is_rung(*from_));
    from_->on_socket();
    from_->disarm();
    await([&] {
        from_->take(got);
        to_->take(got);
        return got.payloads.size() == 1;
    });
    EXPECT_EQ(num_in_flight, 0U);
}

// Nobody has armed: who sent went on computing, and the thread beside it was asleep before.
TEST_F(NearLinkTest, RoomForWhatWaitsWakesWithoutAnotherLook) {
    const std::vector<std::byte> large(3 * NearLink::kRingBytes);
    uint32_t num_in_flight = 0;
    from_->send({{}, large, &num_in_flight});
    Recorder got;
    to_->take(got);
    pollfd event{from_->socket(), POLLIN, 0};
    EXPECT_EQ(::poll(&event, 1, 0), 1);
    from_.reset();
    EXPECT_EQ(num_in_flight, 0U);
}

TEST_F(NearLinkTest, ItsEndIsSeenAndWhatWaitsIsLetGoOf) {
    const std::vector<std::byte> large(3 * NearLink::kRingBytes);
    uint32_t num_in_flight = 0;
    from_->send({{}, large, &num_in_flight});
    EXPECT_EQ(num_in_flight, 1U);
    to_.reset();
    from_->on_socket();
    EXPECT_TRUE(from_->has_failed());
    EXPECT_EQ(num_in_flight, 0U);
    from_->send({{}, large, &num_in_flight});
    EXPECT_EQ(num_in_flight, 0U);
}

// After a message that did not fit: the reader must not go on ringing a writer that waits for
// nothing.
TEST_F(NearLinkTest, WakesNoWriterWhoseMessagesHaveGone) {
    const std::vector<std::byte> large(3 * NearLink::kRingBytes);
    uint32_t num_in_flight = 0;
    from_->send({{}, large, &num_in_flight});
    Recorder got;
    await([&] {
        from_->take(got);
        to_->take(got);
        return got.payloads.size() == 1;
    });
    from_->on_socket();
    EXPECT_EQ(num_in_flight, 0U);
    from_->send({{}, std::span(large).first(64), &num_in_flight});
    to_->take(got);
    ASSERT_EQ(got.payloads.size(), 2U);
    pollfd event{from_->socket(), POLLIN, 0};
    EXPECT_EQ(::poll(&event, 1, 0), 0);
}

// No file descriptor can be made as long as this lives.
class NoDescriptors {
  public:
    NoDescriptors() {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        // What is free is above the limit.
        const int lowest = ::dup(STDERR_FILENO);
        ::close(lowest);
        rlimit none = before_;
        none.rlim_cur = static_cast<rlim_t>(lowest);
        ::setrlimit(RLIMIT_NOFILE, &none);
    }
    ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
    NoDescriptors(const NoDescriptors&) = delete;
    NoDescriptors& operator=(const NoDescriptors&) = delete;

  private:
    rlimit before_{};
};

// Goal: who waits at the door while the process has no descriptor for it does not keep the thread
// awake that sleeps there. Oracle: whether the door's descriptor is readable; who came is let in
// when there is one again.
TEST(NearDoor, IsShutWhileThereIsNoDescriptor) {
    const auto door = NearDoor::make(true, 64).value();
    const auto is_readable = [&] {
        pollfd event{door->descriptor(), POLLIN, 0};
        return ::poll(&event, 1, 0) == 1;
    };
    const int comer = connect_near(door->address()).value();
    ASSERT_TRUE(is_readable());
    {
        const NoDescriptors none;
        EXPECT_TRUE(door->look(1000).empty());
        EXPECT_FALSE(is_readable());
        EXPECT_TRUE(door->look(1000 + NearDoor::kShutUs).empty()) << "tried, and shut once more";
        EXPECT_FALSE(is_readable());
    }
    EXPECT_TRUE(door->look(999 + 2 * NearDoor::kShutUs).empty()) << "not yet";
    EXPECT_EQ(door->look(1000 + 2 * NearDoor::kShutUs).size(), 1U);
    ::close(comer);
}

// Goal: when a worker is new, all of its neighbours come at once, and all are let in. Method: a
// hundred connect before its first look. Oracle: how many links it gets; the one beyond is refused.
TEST(NearDoor, LetsAHundredInThatComeBeforeItsFirstLook) {
    constexpr size_t kComers = 100;
    // The kernel lets one more wait than it was told.
    const auto door = NearDoor::make(true, kComers - 1).value();
    std::vector<int> comers;
    for (size_t i = 0; i < kComers; ++i) {
        const auto comer = connect_near(door->address());
        ASSERT_TRUE(comer.ok()) << i << ": " << comer.error().message;
        comers.push_back(comer.value());
    }
    EXPECT_FALSE(connect_near(door->address()).ok());
    size_t num_in = 0;
    await([&] {
        num_in += door->look(0).size();
        return num_in >= kComers;
    });
    EXPECT_EQ(num_in, kComers);
    for (const int comer : comers) ::close(comer);
}

TEST(NearLinkProcesses, KillIsSeen) {
    const auto door = NearDoor::make(true, 64).value();
    const pid_t pid = ::fork();
    if (pid == 0) {
        const auto link = NearLink::connect(door->address());
        while (link.ok()) ::pause();
        ::_exit(1);
    }
    std::unique_ptr<NearLink> link;
    await([&] {
        for (auto& came : door->look(0)) link = std::move(came);
        return link != nullptr;
    });
    door->watch(*link);
    static_cast<void>(door->look(0));
    EXPECT_FALSE(link->has_failed());
    ::kill(pid, SIGKILL);
    await([&] {
        static_cast<void>(door->look(0));
        return link->has_failed();
    });
    ::waitpid(pid, nullptr, 0);
}

TEST(NearLink, SaysThatNobodyListens) {
    const auto gone = new_near_address();
    ASSERT_TRUE(gone.has_value());
    const auto link = NearLink::connect(*gone);
    ASSERT_FALSE(link.ok());
    EXPECT_EQ(link.error().code, Code::kUnavailable);
    EXPECT_THAT(link.error().message,
                HasSubstr("cannot connect to a worker of this host: Connection refused"));
}

TEST(NearAddress, IsOfThisHostAndNewEachTime) {
    const auto one = new_near_address();
    const auto other = new_near_address();
    ASSERT_TRUE(one && other);
    EXPECT_TRUE(one->is_of_same_host(*other));
    EXPECT_NE(one->name, other->name);
    NearAddress elsewhere = *one;
    ++elsewhere.network;
    EXPECT_FALSE(one->is_of_same_host(elsewhere));
    elsewhere = *one;
    elsewhere.boot[0] ^= std::byte{1};
    EXPECT_FALSE(one->is_of_same_host(elsewhere));
}

// Who listens, and a socket of somebody who keeps to nothing.
class HostileNear : public testing::Test {
  protected:
    HostileNear() : socket_(connect_near(door_->address()).value()) {
        await([&] {
            for (auto& came : door_->look(0)) link_ = std::move(came);
            return link_ != nullptr;
        });
    }
    ~HostileNear() override { ::close(socket_); }

    static constexpr size_t kMemoryBytes = NearLink::kMemoryBytes;

    int memory_of(size_t bytes, int seals) {
        const int memory = ::memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        EXPECT_EQ(::ftruncate(memory, static_cast<off_t>(bytes)), 0);
        EXPECT_EQ(::fcntl(memory, F_ADD_SEALS, seals), 0);
        return memory;
    }
    void hand_over(int memory) {
        ASSERT_TRUE(send_descriptor(socket_, memory).ok());
        ::close(memory);
        link_->on_socket();
    }

    static constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    std::unique_ptr<NearDoor> door_ = NearDoor::make(true, 64).value();
    std::unique_ptr<NearLink> link_;
    int socket_;
};

TEST_F(HostileNear, MemoryThatCouldBeShortenedIsRefused) {
    hand_over(memory_of(kMemoryBytes, 0));
    EXPECT_TRUE(link_->has_failed());
}

TEST_F(HostileNear, MemoryOfAnotherSizeIsRefused) {
    hand_over(memory_of(kMemoryBytes / 2, kSeals));
    EXPECT_TRUE(link_->has_failed());
}

TEST_F(HostileNear, SecondMemoryIsRefused) {
    hand_over(memory_of(kMemoryBytes, kSeals));
    EXPECT_FALSE(link_->has_failed());
    hand_over(memory_of(kMemoryBytes, kSeals));
    EXPECT_TRUE(link_->has_failed());
}

// A packet with two of them, of which none may stay open here.
TEST_F(HostileNear, MoreDescriptorsThanOneAreRefused) {
    const auto num_open = [] {
        const std::filesystem::directory_iterator all("/proc/self/fd");
        return std::distance(begin(all), end(all));
    };
    const int memory = memory_of(kMemoryBytes, kSeals);
    const auto before = num_open();
    const std::array<int, 2> descriptors = {memory, memory};
    char byte = 1;
    iovec part{&byte, 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(descriptors))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr& header = *CMSG_FIRSTHDR(&message);
    header.cmsg_level = SOL_SOCKET;
    header.cmsg_type = SCM_RIGHTS;
    header.cmsg_len = CMSG_LEN(sizeof(descriptors));
    std::memcpy(CMSG_DATA(&header), descriptors.data(), sizeof(descriptors));
    ASSERT_EQ(::sendmsg(socket_, &message, 0), 1);
    link_->on_socket();
    EXPECT_TRUE(link_->has_failed());
    EXPECT_EQ(num_open(), before - 1) << "the link's socket is closed, and nothing else is open";
    ::close(memory);
}

TEST_F(HostileNear, WakingBeforeThereIsMemoryIsRefused) {
    ASSERT_EQ(::send(socket_, "x", 1, 0), 1);
    link_->on_socket();
    EXPECT_TRUE(link_->has_failed());
}

// What announces gigabytes gets no memory for them.
TEST_F(HostileNear, AnnouncedBytesTakeNoMemory) {
    const int memory = memory_of(kMemoryBytes, kSeals);
    auto* bytes = static_cast<std::byte*>(
        ::mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0));
    hand_over(memory);
    const uint64_t announced = NearLink::kPayloadBytesMax;
    std::memcpy(bytes + sizeof(NearRingWords) + 8, &announced, sizeof(announced));
    const uint64_t written = 128 + 1000;
    std::memcpy(bytes, &written, sizeof(written));
    Recorder got;
    const auto mapped_kib = [] {
        long pages = 0;
        FILE* file = std::fopen("/proc/self/statm", "r");
        EXPECT_EQ(std::fscanf(file, "%ld", &pages), 1);
        std::fclose(file);
        return pages * 4;
    };
    const long before = mapped_kib();
    link_->take(got);
    EXPECT_LT(mapped_kib() - before, 4096);
    EXPECT_FALSE(link_->has_failed());
    ::munmap(bytes, kMemoryBytes);
}

// Random stores anywhere into the memory, while the link sends and receives. Oracle: the process
// lives (the sanitizers look, too), and headers have at most what they may.
TEST_F(HostileNear, RandomStoresCostTheLinkAlone) {
    const int memory = memory_of(kMemoryBytes, kSeals);
    auto* bytes = static_cast<std::byte*>(
        ::mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0));
    hand_over(::fcntl(memory, F_DUPFD_CLOEXEC, 0));
    std::mt19937 random(7);
    const std::vector<std::byte> row(20'000, std::byte{1});
    uint32_t num_in_flight = 0;
    Recorder got;
    int num_links = 0;
    for (int i = 0; i < 200'000; ++i) {
        if (link_->has_failed()) {
            // The next victim.
            ::close(socket_);
            socket_ = connect_near(door_->address()).value();
            link_.reset();
            ASSERT_EQ(num_in_flight, 0U);
            for (auto& came : door_->look(0)) link_ = std::move(came);
            ASSERT_NE(link_, nullptr);
            std::memset(bytes, 0, kMemoryBytes);
            hand_over(::fcntl(memory, F_DUPFD_CLOEXEC, 0));
            ++num_links;
        }
        const uint64_t plausible = random() % (2 * NearLink::kRingBytes);
        const size_t where = random() % 4 == 0 ? random() % (kMemoryBytes - 8)
                                               : random() % (sizeof(NearRingWords) + 256);
        std::memcpy(bytes + where, &plausible, random() % 8 + 1);
        // The counts of the reader's ring, to let it go on.
        const uint64_t written = random() % NearLink::kRingBytes;
        if (random() % 2 == 0) std::memcpy(bytes, &written, sizeof(written));
        link_->send({std::as_bytes(std::span(&i, 1)), row, &num_in_flight});
        link_->take(got);
        got.payloads.clear();
        for (const auto& header : got.headers) {
            ASSERT_LE(header.size(), NearLink::kHeaderBytesMax);
        }
        got.headers.clear();
    }
    EXPECT_GT(num_links, 100);
    link_.reset();
    EXPECT_EQ(num_in_flight, 0U);
    ::munmap(bytes, kMemoryBytes);
    ::close(memory);
}

}  // namespace
}  // namespace afd::schedule
