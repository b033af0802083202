// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/socket_listener.h"

#include <gtest/gtest.h>

namespace afd::daemon {
namespace {

// Goal: who is turned away can be found in the log. Only root gets past the mode of the socket, so
// the decision is tested, and not a connection.
TEST(SocketListener, RefusalSaysWhoAskedAndWhoIsServed) {
    EXPECT_FALSE(refusal_of(PeerCredentials{7, 1000}, 1000).has_value());
    EXPECT_EQ(refusal_of(PeerCredentials{7, 0}, 1000),
              "pid 7 is of uid 0; only uid 1000 is served");
    EXPECT_EQ(refusal_of(Error{Code::kPermissionDenied, "cannot ask"}, 1000), "cannot ask");
}

}  // namespace
}  // namespace afd::daemon
