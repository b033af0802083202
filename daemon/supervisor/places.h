// SPDX-License-Identifier: Apache-2.0
#pragma once

// Places: which process has which place of the instance, where workers talk over a transport
// between machines (R13): its epoch, and the address at which an FFN worker listens.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "proto/control.pb.h"

namespace afd::daemon {

class Places {
  public:
    // The most bytes of an address; none has as many.
    static constexpr size_t kAddressBytesMax = 128;

    // A process gets the place. REQUIRES: a higher epoch than the one before.
    const control::Place& begin(control::Role role, uint32_t index, uint64_t epoch) {
        control::Place& place = places_[{role, index}];
        place.set_role(role);
        place.set_index(index);
        place.set_epoch(epoch);
        place.clear_address();
        return place;
    }
    // It listens: its place, or null if that was said before, or is no address. REQUIRES: begin().
    const control::Place* listens(control::Role role, uint32_t index, const std::string& address) {
        control::Place& place = places_.at({role, index});
        if (!place.address().empty() || address.size() > kAddressBytesMax) return nullptr;
        place.set_address(address);
        return &place;
    }

    // What a process of `role` hears first: the places of the other role.
    void fill(control::Role role, control::Ucx& ucx) const {
        for (const auto& [key, place] : places_) {
            if (key.first != role) *ucx.add_places() = place;
        }
    }

  private:
    std::map<std::pair<control::Role, uint32_t>, control::Place> places_;
};

}  // namespace afd::daemon
