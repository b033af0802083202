// SPDX-License-Identifier: Apache-2.0
//
// What a client sends. Input: bytes of its connection. They arrive in pieces of growing size, are
// cut into frames, parsed and given to a gateway. Oracle: as ClientConnection does it, bytes that
// are no request end the connection and nothing else; every request that was accepted is over
// when client and worker have gone.

#include <algorithm>

#include "proto/check.h"
#include "proto/frame.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/gateway_around.h"

namespace {

// False: the connection ends.
bool take_frames(afd::FrameReader& reader, afd::fuzz::GatewayAround& around) {
    while (true) {
        const auto frame = reader.next();
        if (!frame.ok()) return false;
        if (!frame.value()) return true;
        afd::client::Request request;
        const auto size = static_cast<int>(frame.value()->size());
        if (!request.ParseFromArray(frame.value()->data(), size)) return false;
        if (!around.client().is_open()) return false;
        around.client().ask(request);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    afd::fuzz::GatewayAround around;
    afd::FrameReader reader;
    std::string_view rest(reinterpret_cast<const char*>(data), size);
    for (size_t piece = 1; !rest.empty(); piece *= 2) {
        const std::string_view part = rest.substr(0, piece);
        reader.append(part);
        rest.remove_prefix(part.size());
        if (!take_frames(reader, around)) break;
        AFD_ASSERT(reader.held_bytes() <= size, "%zu bytes held", reader.held_bytes());
    }
    if (around.client().is_open()) around.client().close();
    // What runs ends with the worker's word or the worker, and nobody wants it again.
    around.gateway().on_attention_gone(0, {});
    AFD_ASSERT(around.gateway().num_in_flight() == 0,
               "%zu requests of a client that has gone",
               static_cast<size_t>(around.gateway().num_in_flight()));
    return 0;
}
