// SPDX-License-Identifier: Apache-2.0
#include "tests/schedule/transport/toy_network.h"

#include "tests/schedule/transport/toy_transport.h"

namespace afd::schedule {

std::unique_ptr<DispatchTransport> ToyNetwork::dispatch(uint32_t session) {
    // Fetches the flags that stand in the ranks' windows.
    machines_.wire().cut(Role::kAttention, session, [&] {
        for (uint32_t f = 0; f < machines_.num_ranks(); ++f) {
            for (uint32_t m = 0; m < layout().geometry.num_micro_batches; ++m) {
                machines_.session(session).published[f][m] =
                    observe_own(*machines_.descriptor(f, session, m));
            }
        }
    });
    return std::make_unique<ToyDispatch>(machines_, session);
}

std::unique_ptr<ReturnTransport> ToyNetwork::returns(uint32_t rank) {
    auto made = std::make_unique<ToyReturn>(machines_, rank);
    machines_.wire().cut(Role::kFfn, rank, [&] { made->connect(); });
    return made;
}

}  // namespace afd::schedule
