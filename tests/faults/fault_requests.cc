// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/fault_requests.h"

#include "tests/integration/background_generation.h"

namespace afd::test {
namespace {

constexpr size_t kTemplates = 10;

}  // namespace

std::vector<client::Generate> fault_requests() {
    std::vector<client::Generate> made;
    for (uint32_t i = 0; i < kTemplates; ++i) {
        client::Generate request = long_request(20 + 12 * i);
        request.clear_token_ids();
        const uint32_t length = i % 3 == 2 ? 200 + 20 * i : 1 + 9 * i;
        for (uint32_t t = 0; t < length; ++t) {
            request.mutable_token_ids()->add_ids(3 + (t * 11 + i) % 200);
        }
        if (i % 2 == 1) {
            request.mutable_sampling()->set_temperature(0.9F);
            request.mutable_sampling()->set_seed(77 + i);
        }
        made.push_back(std::move(request));
    }
    return made;
}

}  // namespace afd::test
