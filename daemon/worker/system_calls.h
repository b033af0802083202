// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a worker may still ask the kernel for while it serves: a seccomp filter over all of its
// threads, set once everything is loaded and attached. It cannot be taken off again.
//
// Allowed: to compute, wait, allocate, use the descriptors that are there, and end. Not: to start a
// program or process, to open a file, to make a socket or connect one, to signal or look into
// another process, to make memory executable, to change a file system but for taking the rights to
// a file that is open. (What is more for Reach::kSockets: below.) A forbidden call fails with
// EPERM, as if the kernel had refused it, so that a library which merely tries does not end the
// worker. What the kernel gives a process for asking, the tiles of AMX, has been asked for before.
//
// A worker of transport ucx makes connections over TCP while it serves, so it may make and use
// sockets of TCP, of routes, and the kind that neighbours have (AF_UNIX, SOCK_SEQPACKET, so that
// the stream sockets of other services are out of reach), make memory for its neighbours, and look
// at files and read them from their beginning: UCX looks up routes, limits and its network
// namespace, and asks for the properties of network devices. What /proc shows of a process of the
// same user it can read, too, and what that has open, but not its private memory, which takes a
// seek.

#include "proto/status.h"

namespace afd::daemon {

// Whether this build can: not under a sanitizer, which asks for what no worker does.
bool can_confine();

enum class Reach {
    kDescriptors,  // Those that are there.
    kSockets,      // And new connections: transport ucx over TCP.
};

// Confines all threads of the process. REQUIRES: can_confine().
// Errors: kUnimplemented: the kernel has no seccomp, or another filter forbids it.
Result<> confine_system_calls(Reach reach);

}  // namespace afd::daemon
