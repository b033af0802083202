// SPDX-License-Identifier: Apache-2.0
#pragma once

// ScarceKernel: sendmsg() of this program, which fails for a while as that of a machine does where
// memory, or room for descriptors on their way, is short. Everything else in the program that sends
// so is concerned, too.

namespace afd::daemon {

class ScarceKernel {
  public:
    // The next `count` calls fail with `error`.
    static void fail_sends(int count, int error);
    // How many of them are left.
    static int num_left();
};

}  // namespace afd::daemon
