// SPDX-License-Identifier: Apache-2.0
#pragma once

// free_port(): for who has to listen twice at the same TCP port.
//
// The kernel hands out none below its range (ip_local_port_range). So no connection gets the port
// while nobody listens there: neither that of another process, nor one that looks for who listens,
// and would find itself.

#include <cstdint>

namespace afd::test {

// One that nobody has now; others of the process, and those of other processes that run beside it,
// get another one. Fails the test, and returns 0, if there is none.
uint16_t free_port();

}  // namespace afd::test
