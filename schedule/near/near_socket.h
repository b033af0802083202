// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is asked of the kernel for links between workers of one host: sockets without files, and a
// descriptor that is handed over one of them. All are non-blocking. Errors: kUnavailable,
// kResourceExhausted, with the kernel's reason.

#include <cstddef>

#include "proto/status.h"
#include "schedule/near/near_address.h"

namespace afd::schedule {

// Up to `num_waiting` (and what the kernel allows, somaxconn) wait to be accepted; others are told
// that there is no room.
Result<int> listen_near(const NearAddress& address, size_t num_waiting);
// Errors: also kPermissionDenied: another user listens there.
Result<int> connect_near(const NearAddress& address);
// A socket that has come to a listener, or one of these.
inline constexpr int kNoneCame = -1;
inline constexpr int kOtherUserCame = -2;   // Closed.
inline constexpr int kNoRoomForComer = -3;  // No descriptor or no memory for it: it waits on.
int accept_near(int listener);

// With one byte. Errors: also that the peer is gone.
Result<> send_descriptor(int socket, int descriptor);

// What a socket has for its reader.
struct NearNews {
    bool is_over = false;  // The peer is gone, or says what it should not.
    bool is_any = false;
    int descriptor = -1;  // Handed over; the caller's.
};
NearNews receive_near(int socket);

}  // namespace afd::schedule
