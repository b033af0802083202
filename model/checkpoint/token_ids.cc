// SPDX-License-Identifier: Apache-2.0
#include "model/checkpoint/token_ids.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "proto/failure.h"

namespace afd::model {

using Json = nlohmann::json;

Result<std::vector<uint32_t>> read_token_ids(const Json& object,
                                             const char* key,
                                             uint32_t vocab_size,
                                             const std::string& origin) {
    const auto at = object.find(key);
    if (at == object.end() || at->is_null()) return std::vector<uint32_t>();
    // Files have one id or a list of them under the same key.
    const Json list = at->is_array() ? *at : Json::array({*at});
    std::vector<uint32_t> ids;
    for (const Json& id : list) {
        if (!id.is_number_unsigned() || id.get<uint64_t>() >= vocab_size) {
            return invalid_argument(
                "{}: {} is {}; supported: one integer or a list of them, each in [0, {}) "
                "(vocab_size)",
                with(origin,
                     key,
                     at->dump(-1, ' ', false, Json::error_handler_t::replace),
                     vocab_size));
        }
        ids.push_back(id.get<uint32_t>());
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
}

}  // namespace afd::model
