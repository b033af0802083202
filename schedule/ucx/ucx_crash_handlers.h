// SPDX-License-Identifier: Apache-2.0
#pragma once

// UCX's crash handlers: every program that links the library has them, from before main() on,
// whether it uses UCX or not.

namespace afd::schedule {

// A crash ends the process at once and says nothing. Once, before any other thread runs.
void remove_ucx_crash_handlers();

}  // namespace afd::schedule
