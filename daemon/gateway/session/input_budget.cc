// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/session/input_budget.h"

#include <fmt/core.h>

#include <algorithm>

namespace afd::daemon {

void InputBudget::hold(Holder& holder, size_t bytes) {
    if (const auto found = held_.find(&holder); found != held_.end()) {
        bytes_ -= found->second;
        held_.erase(found);
    }
    if (bytes == 0) return;
    held_.emplace(&holder, bytes);
    bytes_ += bytes;
    while (bytes_ > limits_.bytes_max && !held_.empty()) {
        const auto largest =
            std::max_element(held_.begin(), held_.end(), [](const auto& a, const auto& b) {
                return a.second < b.second;
            });
        largest->first->give_up(
            fmt::format("its {} bytes of requests that are not complete or not yet read are the "
                        "largest part of "
                        "{} bytes that wait, at most {} are kept (input_buffer_kib)",
                        largest->second,
                        bytes_,
                        limits_.bytes_max));
    }
}

}  // namespace afd::daemon
