// SPDX-License-Identifier: Apache-2.0
#pragma once

// NetworkLink: two devices, the ends of one link. By itself a pair (veth), which is as fast as
// memory; with conditions, a link that is slow, loses and reorders: by netem where the kernel has
// it, else emulated (link_emulator.h). With AFD_NETEM_REQUIRED in the environment there is no link
// without netem. Needs what network_devices.h needs.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tools/afd-link/link_emulator.h"

namespace afd::test {

class NetworkLink {
  public:
    // Makes devices of these names here; one of them, `far`, is to be moved.
    NetworkLink(const std::string& near,
                const std::string& far,
                const std::optional<tools::LinkConditions>& conditions);
    // The devices go with it.
    ~NetworkLink();
    NetworkLink(const NetworkLink&) = delete;
    NetworkLink& operator=(const NetworkLink&) = delete;

    // Moves the far end to that namespace, where it is called `name` and has the address (with the
    // bits of its network). Both ends are up then. False: something of it, or of the devices, was
    // not possible.
    bool move_far(const std::string& name_space,
                  const std::string& name,
                  const std::string& address);

    // Frames of both directions that the conditions have lost until now.
    uint64_t num_lost() const;

    // Until mend(), nothing gets through. With netem both ends look as before; without, the near
    // end is down.
    bool cut() const;
    bool mend() const;

  private:
    bool set_netem(const tools::LinkConditions& conditions) const;

    const std::string near_;
    std::string far_;
    std::string name_space_;  // Empty: the far end has not been moved.
    const std::optional<tools::LinkConditions> conditions_;
    const bool has_netem_;
    std::unique_ptr<tools::LinkEmulator> emulator_;
    bool is_there_ = false;
};

// Whether this kernel can delay and lose packets (tc netem).
bool kernel_has_netem();

}  // namespace afd::test
