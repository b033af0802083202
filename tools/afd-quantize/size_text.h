// SPDX-License-Identifier: Apache-2.0
#pragma once

// size_text: how afd-quantize writes sizes, "6.3 MiB" or "1.50 GiB".

#include <fmt/core.h>

#include <cstdint>
#include <string>

namespace afd::tools {

inline std::string size_text(uint64_t bytes) {
    const double mebibytes = static_cast<double>(bytes) / (1u << 20);
    return mebibytes < 1024 ? fmt::format("{:.1f} MiB", mebibytes)
                            : fmt::format("{:.2f} GiB", mebibytes / 1024);
}

}  // namespace afd::tools
