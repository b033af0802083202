// SPDX-License-Identifier: Apache-2.0
#include "proto/write_all.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <thread>
#include <vector>

namespace afd {
namespace {

// Goal: all bytes get there, in order, though writes end early. Method: a small pipe, and a signal
// to the writer before each read, which cuts short the write that waits. Oracle: what is read.
TEST(WriteAll, GoesOnAfterWritesThatWereCutShort) {
    std::vector<std::byte> bytes(100'000);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
    struct sigaction cut {};
    struct sigaction before {};
    cut.sa_handler = [](int) {};  // Without SA_RESTART.
    ASSERT_EQ(sigaction(SIGUSR1, &cut, &before), 0);
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    ASSERT_GE(fcntl(ends[1], F_SETPIPE_SZ, 4096), 4096);
    std::vector<std::byte> arrived;
    std::thread reader([&arrived, from = ends[0], writer = pthread_self()] {
        std::array<std::byte, 777> part{};
        for (ssize_t size = 1; size > 0;) {
            pthread_kill(writer, SIGUSR1);
            size = read(from, part.data(), part.size());
            arrived.insert(arrived.end(), part.begin(), part.begin() + std::max<ssize_t>(size, 0));
        }
    });
    EXPECT_TRUE(write_all(ends[1], bytes));
    close(ends[1]);
    reader.join();
    close(ends[0]);
    sigaction(SIGUSR1, &before, nullptr);
    EXPECT_EQ(arrived, bytes);
}

TEST(WriteAll, SaysWhyItFailed) {
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    const std::array<std::byte, 3> bytes{};
    errno = 0;
    EXPECT_FALSE(write_all(full, bytes));
    EXPECT_EQ(errno, ENOSPC);
    EXPECT_TRUE(write_all(full, {}));
    close(full);
}

}  // namespace
}  // namespace afd
