// SPDX-License-Identifier: Apache-2.0
#include "schedule/ucx/ucx_address.h"

#include <cstring>
#include <type_traits>

#include "proto/failure.h"
#include "schedule/ucx/ucx_library.h"

namespace afd::schedule {

static_assert(std::is_trivially_copyable_v<NearAddress>);

std::vector<std::byte> UcxAddress::bytes() const {
    const size_t ucx_bytes = ucx_length_of(ucx);
    std::vector<std::byte> bytes(1 + ucx_bytes + (near ? sizeof(NearAddress) : 0));
    bytes[0] = static_cast<std::byte>(ucx_bytes);
    std::memcpy(bytes.data() + 1, &ucx, ucx_bytes);
    if (near) std::memcpy(bytes.data() + 1 + ucx_bytes, &*near, sizeof(NearAddress));
    return bytes;
}

Result<UcxAddress> UcxAddress::parse(std::span<const std::byte> bytes) {
    UcxAddress address;
    const size_t ucx_bytes = bytes.empty() ? 0 : std::to_integer<size_t>(bytes[0]);
    if (ucx_bytes < sizeof(sa_family_t) || ucx_bytes > sizeof(address.ucx) ||
        bytes.size() < 1 + ucx_bytes) {
        return data_loss("an address of {} bytes", with(bytes.size()));
    }
    std::memcpy(&address.ucx, bytes.data() + 1, ucx_bytes);
    const bool is_known = address.ucx.ss_family == AF_INET || address.ucx.ss_family == AF_INET6;
    if (!is_known || ucx_bytes != ucx_length_of(address.ucx)) {
        return data_loss("an address of family {} and {} bytes",
                         with(address.ucx.ss_family, ucx_bytes));
    }
    const std::span<const std::byte> near = bytes.subspan(1 + ucx_bytes);
    if (near.empty()) return address;
    if (near.size() != sizeof(NearAddress)) {
        return data_loss("an address with {} bytes behind it", with(near.size()));
    }
    std::memcpy(&address.near.emplace(), near.data(), sizeof(NearAddress));
    return address;
}

}  // namespace afd::schedule
