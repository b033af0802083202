// SPDX-License-Identifier: Apache-2.0
//
// Goal: what is written arrives once and in order whatever the socket takes at a time; nothing to
// read, the end of a peer and its loss are told apart. Method: both ends of a socket pair. Oracle:
// the bytes that were put in.
#include "daemon/loop/stream_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace afd::daemon {
namespace {

class StreamSocketTest : public testing::Test {
  protected:
    StreamSocketTest() {
        std::array<int, 2> ends = {-1, -1};
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
        socket_ = std::make_unique<StreamSocket>(UniqueFd(ends[0]));
        peer_ = std::make_unique<StreamSocket>(UniqueFd(ends[1]));
    }

    std::unique_ptr<StreamSocket> socket_;
    std::unique_ptr<StreamSocket> peer_;
    std::array<char, 4096> memory_;
};

TEST_F(StreamSocketTest, WritesMoreThanTheSocketTakesAtATime) {
    std::string all;
    for (int i = 0; i < 400'000; ++i) all += static_cast<char>('a' + i % 23);
    std::string heard;
    size_t num_written = 0;
    for (int turn = 0; heard.size() < all.size(); ++turn) {
        ASSERT_LT(turn, 10'000);
        // More is said while the rest of the last waits.
        const size_t more = std::min<size_t>(70'000, all.size() - num_written);
        socket_->output() += all.substr(num_written, more);
        num_written += more;
        ASSERT_TRUE(socket_->write());
        const std::optional<std::string_view> arrived = peer_->receive(memory_);
        ASSERT_TRUE(arrived);
        heard += *arrived;
    }
    EXPECT_EQ(heard, all);
    EXPECT_EQ(socket_->unsent_bytes(), 0u);
}

// Goal: a peer that takes all at once does not hold whoever writes. Method: a thread that empties
// the other end while this one writes. Oracle: a turn has its bytes, and all of them arrive.
TEST_F(StreamSocketTest, WritesSoMuchATurnHoweverFastItIsRead) {
    constexpr size_t kTurns = 8;
    constexpr size_t kAll = kTurns * StreamSocket::kWriteBytesMax;
    std::atomic<size_t> num_read = 0;
    std::thread reader([&] {
        std::vector<char> memory(size_t{1} << 20);
        ssize_t size = 0;
        while ((size = ::recv(peer_->get(), memory.data(), memory.size(), 0)) > 0) {
            num_read += static_cast<size_t>(size);
        }
    });
    socket_->output().assign(kAll, 'a');
    for (size_t unsent = kAll; unsent > 0;) {
        if (!socket_->write()) break;
        EXPECT_LE(unsent - socket_->unsent_bytes(), StreamSocket::kWriteBytesMax);
        unsent = socket_->unsent_bytes();
    }
    socket_->release();
    reader.join();
    EXPECT_EQ(num_read, kAll);
}

TEST_F(StreamSocketTest, HearsNothingNowAndTheEnd) {
    const std::optional<std::string_view> now = peer_->receive(memory_);
    ASSERT_TRUE(now);
    EXPECT_TRUE(now->empty());
    socket_->output() = "last words";
    ASSERT_TRUE(socket_->write());
    socket_->release();
    EXPECT_FALSE(socket_->is_open());
    const std::optional<std::string_view> last = peer_->receive(memory_);
    ASSERT_TRUE(last);
    EXPECT_EQ(*last, "last words");
    EXPECT_FALSE(peer_->receive(memory_));
}

TEST_F(StreamSocketTest, SaysThatThePeerHasGone) {
    peer_->release();
    socket_->output() = "to nobody";
    EXPECT_FALSE(socket_->write());
    socket_->release();
    EXPECT_EQ(socket_->unsent_bytes(), 0u);
}

}  // namespace
}  // namespace afd::daemon
