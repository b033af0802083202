// SPDX-License-Identifier: Apache-2.0
#include "schedule/near/near_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "proto/failure.h"

namespace afd::schedule {
namespace {

// Of the last call.
bool wants_descriptor_or_memory() {
    return errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
}

Error socket_error(const char* what) {
    const Code code = wants_descriptor_or_memory() ? Code::kResourceExhausted : Code::kUnavailable;
    return Error{code, std::string(what) + " a worker of this host: " + std::strerror(errno)};
}

// An abstract name: no file, and gone with its socket.
struct SocketName {
    sockaddr_un address{};
    socklen_t bytes = 0;

    explicit SocketName(const NearAddress& near) {
        constexpr std::string_view kPrefix = "afd-near-";
        constexpr std::string_view kDigits = "0123456789abcdef";
        address.sun_family = AF_UNIX;
        char* to = std::copy(kPrefix.begin(), kPrefix.end(), address.sun_path + 1);
        for (const std::byte byte : near.name) {
            *to++ = kDigits[std::to_integer<size_t>(byte >> 4)];
            *to++ = kDigits[std::to_integer<size_t>(byte & std::byte{15})];
        }
        bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) +
                                       static_cast<size_t>(to - address.sun_path));
    }
    const sockaddr* get() const {
        const void* first = &address;
        return static_cast<const sockaddr*>(first);
    }
};

Result<int> make_socket() {
    const int made = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made < 0) return socket_error("no socket for");
    return made;
}

// As if it had never been made.
Error give_up(int socket, const Error& error) {
    ::close(socket);
    return error;
}

bool is_of_this_user(int socket) {
    ucred peer{};
    socklen_t bytes = sizeof(peer);
    return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
           peer.uid == ::geteuid();
}

// A byte, and room for one descriptor with it and no more: the padding behind it would have room
// for another.
struct Packet {
    char byte = 1;
    iovec part{&byte, 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};

    Packet() {
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control.data();
        message.msg_controllen = CMSG_LEN(sizeof(int));
    }
    Packet(const Packet&) = delete;
    Packet& operator=(const Packet&) = delete;
};

}  // namespace

Result<int> listen_near(const NearAddress& address, size_t num_waiting) {
    AFD_ASSIGN(const int made, make_socket());
    const SocketName name(address);
    if (::bind(made, name.get(), name.bytes) != 0 ||
        ::listen(made, static_cast<int>(num_waiting)) != 0) {
        return give_up(made, socket_error("cannot listen for"));
    }
    return made;
}

Result<int> connect_near(const NearAddress& address) {
    AFD_ASSIGN(const int made, make_socket());
    const SocketName name(address);
    if (::connect(made, name.get(), name.bytes) != 0) {
        return give_up(made, socket_error("cannot connect to"));
    }
    if (!is_of_this_user(made)) {
        return give_up(made,
                       Error{Code::kPermissionDenied, "the worker of this host is another user's"});
    }
    return made;
}

int accept_near(int listener) {
    const int made = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (made < 0) return wants_descriptor_or_memory() ? kNoRoomForComer : kNoneCame;
    if (is_of_this_user(made)) return made;
    ::close(made);
    return kOtherUserCame;
}

Result<> send_descriptor(int socket, int descriptor) {
    Packet packet;
    cmsghdr& header = *CMSG_FIRSTHDR(&packet.message);
    header.cmsg_level = SOL_SOCKET;
    header.cmsg_type = SCM_RIGHTS;
    header.cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(&header), &descriptor, sizeof(int));
    if (::sendmsg(socket, &packet.message, MSG_NOSIGNAL) != 1) {
        return socket_error("cannot write to");
    }
    return {};
}

NearNews receive_near(int socket) {
    Packet packet;
    const ssize_t bytes = ::recvmsg(socket, &packet.message, MSG_CMSG_CLOEXEC);
    if (bytes < 0) return {.is_over = errno != EAGAIN && errno != EINTR};
    NearNews news{.is_over = bytes == 0, .is_any = true};
    const cmsghdr* header = CMSG_FIRSTHDR(&packet.message);
    if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
        std::memcpy(&news.descriptor, CMSG_DATA(header), sizeof(int));
    }
    // More of them than were to come: the kernel has closed those that had no room.
    news.is_over |= (packet.message.msg_flags & MSG_CTRUNC) != 0;
    return news;
}

}  // namespace afd::schedule
