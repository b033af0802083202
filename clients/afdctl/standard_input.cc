// SPDX-License-Identifier: Apache-2.0
#include "clients/afdctl/standard_input.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace afd::client {

// Not a stream: these take a read that failed or was interrupted for the end.
Result<std::string> read_standard_input(const Cancellation& cancellation) {
    std::string text;
    std::array<char, 1 << 16> part;
    while (true) {
        std::array<pollfd, 2> items = {pollfd{STDIN_FILENO, POLLIN, 0},
                                       pollfd{cancellation.fd(), POLLIN, 0}};
        // A signal ends it with nothing to read.
        poll(items.data(), items.size(), -1);
        if (cancellation.requested()) {
            return afd::Error{Code::kCancelled, "interrupted before standard input had ended"};
        }
        if (items[0].revents == 0) continue;
        const ssize_t size = read(STDIN_FILENO, part.data(), part.size());
        if (size == 0) return text;
        if (size > 0) {
            text.append(part.data(), static_cast<size_t>(size));
        } else if (errno != EINTR && errno != EAGAIN) {
            return afd::Error{
                Code::kFailedPrecondition,
                std::string("standard input cannot be read: ") + std::strerror(errno)};
        }
    }
}

}  // namespace afd::client
