// SPDX-License-Identifier: Apache-2.0
#include "schedule/shared_memory/segment_name.h"

#include <algorithm>

namespace afd::schedule {

namespace {

constexpr std::string_view kDigits = "0123456789";

bool consume(std::string_view& text, std::string_view head) {
    if (text.substr(0, head.size()) != head) return false;
    text.remove_prefix(head.size());
    return true;
}

size_t consume_while(std::string_view& text, std::string_view allowed) {
    const size_t count = std::min(text.find_first_not_of(allowed), text.size());
    text.remove_prefix(count);
    return count;
}

}  // namespace

std::string segment_prefix(std::string_view instance, uint64_t instance_id) {
    std::string prefix = "/afd-" + std::string(instance) + "-";
    for (int shift = 60; shift >= 0; shift -= 4) {
        prefix += "0123456789abcdef"[(instance_id >> shift) & 15];
    }
    return prefix;
}

std::string segment_name(std::string_view prefix, Role role, uint32_t index, SegmentKind kind) {
    std::string name(prefix);
    name += role == Role::kFfn ? "-ffn" : "-attn";
    name += std::to_string(index);
    switch (kind) {
        case SegmentKind::kWindow:
            return name + "-window";
        case SegmentKind::kControl:
            return name + "-control";
        case SegmentKind::kMetrics:
            return name + "-metrics";
        case SegmentKind::kTwoPhase:
            return name + "-two-phase";
    }
    return name;
}

bool is_segment_of(std::string_view file, std::string_view instance) {
    if (!consume(file, "afd-") || !consume(file, instance) || !consume(file, "-")) return false;
    // Exactly sixteen digits tell instance "a" from "a-0123", as tools without afdd may name
    // theirs.
    if (consume_while(file, "0123456789abcdef") != 16 || !consume(file, "-")) return false;
    if (!consume(file, "attn") && !consume(file, "ffn")) return false;
    if (consume_while(file, kDigits) == 0) return false;
    if (consume(file, "-receive") || consume(file, "-return")) {
        return consume_while(file, kDigits) > 0 && consume(file, "r") &&
               consume_while(file, kDigits) > 0 && file.empty();
    }
    return file == "-window" || file == "-control" || file == "-metrics" || file == "-two-phase";
}

}  // namespace afd::schedule
