// SPDX-License-Identifier: Apache-2.0
#pragma once

// The names of states in client::Status and client::Worker (client.proto). They travel as text, so
// that whoever shows them need not know them; whoever writes or compares one takes it from here.

#include <string_view>

namespace afd {

// Status.state, of the instance.
// Not all workers have been ready yet.
inline constexpr std::string_view kInstanceStarting = "starting";
inline constexpr std::string_view kInstanceReady = "ready";
// Some attention workers cannot start again, others serve; or a link between two workers that serve
// stays down.
inline constexpr std::string_view kInstanceDegraded = "degraded";
// Nobody is served, and requests wait, until a halted worker is to run again.
inline constexpr std::string_view kInstanceHalted = "halted";
// Nobody can be served, and new requests are refused.
inline constexpr std::string_view kInstanceFailed = "failed";
// New requests are refused, and those that there are go on to their end.
inline constexpr std::string_view kInstanceDraining = "draining";

// Worker.state: with a process,
inline constexpr std::string_view kWorkerStarting = "starting";
inline constexpr std::string_view kWorkerReady = "ready";      // It serves.
inline constexpr std::string_view kWorkerStopped = "stopped";  // By a signal or a debugger.
// and without one.
inline constexpr std::string_view kWorkerBackOff = "back-off";  // It is started again in a while.
inline constexpr std::string_view kWorkerHalted = "halted";     // Its run_flag is 0.
inline constexpr std::string_view kWorkerNoHost = "no host";  // Where it is to run has not joined.
inline constexpr std::string_view kWorkerDead = "dead";       // Nothing of these.

}  // namespace afd
