// SPDX-License-Identifier: Apache-2.0
#include "schedule/layout/segment_header.h"

#include <algorithm>
#include <cstring>

#include "proto/failure.h"

namespace afd::schedule {
namespace {

using Text = std::array<char, 128>;

// Up to the first NUL; never beyond the array.
std::string text_of(const Text& text) {
    return {text.begin(), std::find(text.begin(), text.end(), '\0')};
}

Result<> set_text(const char* name, const std::string& value, Text& text) {
    if (value.size() >= text.size() || value.find('\0') != std::string::npos) {
        return invalid_argument("{} '{}' must have at most {} bytes and no NUL",
                                with(name, value, text.size() - 1));
    }
    std::copy(value.begin(), value.end(), text.begin());
    return {};
}

Result<> compare(const char* field, const std::string& found, const std::string& expected) {
    if (found == expected) return {};
    return failed_precondition(
        "the segment's {} is '{}' but this process expects '{}'; start both sides from one build, "
        "model and configuration",
        with(field, found, expected));
}

Result<> compare(const char* field, uint64_t found, uint64_t expected) {
    return compare(field, std::to_string(found), std::to_string(expected));
}

Result<> compare(const Geometry& found, const Geometry& expected) {
    AFD_TRY(compare("num_sessions", found.num_sessions, expected.num_sessions));
    AFD_TRY(compare("num_micro_batches", found.num_micro_batches, expected.num_micro_batches));
    AFD_TRY(compare("micro_batch_size", found.micro_batch_size, expected.micro_batch_size));
    AFD_TRY(
        compare("selected_expert_num", found.selected_expert_num, expected.selected_expert_num));
    AFD_TRY(compare("num_experts", found.num_experts, expected.num_experts));
    AFD_TRY(compare("attn_to_ffn_token_bytes",
                    found.attn_to_ffn_token_bytes,
                    expected.attn_to_ffn_token_bytes));
    AFD_TRY(compare("ffn_to_attn_token_bytes",
                    found.ffn_to_attn_token_bytes,
                    expected.ffn_to_attn_token_bytes));
    return compare("num_ffn_workers", found.num_ffn_workers, expected.num_ffn_workers);
}

}  // namespace

std::string_view role_index_name(Role role) {
    return role == Role::kFfn ? "ffn rank" : "session";
}

Result<SegmentHeader> make_segment_header(const Geometry& geometry,
                                          const InstanceIdentity& identity,
                                          Role role,
                                          uint32_t index) {
    SegmentHeader header{};
    header.magic = kSegmentMagic;
    // Version and size come right behind the magic, and check() compares them first: a build of
    // another layout must not interpret what follows.
    header.layout_version = kLayoutVersion;
    header.header_bytes = sizeof(SegmentHeader);
    header.role = role;
    header.index = index;
    header.instance_id = identity.instance_id;
    header.geometry = geometry;
    AFD_TRY(set_text("model identity", identity.model_identity, header.model_identity));
    AFD_TRY(set_text("numeric class", identity.numeric_class, header.numeric_class));
    header.router = identity.router;
    header.row_dtype = identity.row_dtype;
    return header;
}

Result<> check(const SegmentHeader& found, const SegmentHeader& expected) {
    AFD_TRY(compare("magic", found.magic, expected.magic));
    AFD_TRY(compare("layout version", found.layout_version, expected.layout_version));
    AFD_TRY(compare("header size", found.header_bytes, expected.header_bytes));
    AFD_TRY(
        compare("role", static_cast<uint32_t>(found.role), static_cast<uint32_t>(expected.role)));
    AFD_TRY(compare("index", found.index, expected.index));
    // An instance of the same name that started anew has another id, so a worker of the old one
    // cannot attach to it.
    AFD_TRY(compare("instance id", found.instance_id, expected.instance_id));
    AFD_TRY(compare(found.geometry, expected.geometry));
    AFD_TRY(
        compare("model identity", text_of(found.model_identity), text_of(expected.model_identity)));
    AFD_TRY(
        compare("numeric class", text_of(found.numeric_class), text_of(expected.numeric_class)));
    AFD_TRY(compare(
        "router", static_cast<uint32_t>(found.router), static_cast<uint32_t>(expected.router)));
    return compare("row dtype",
                   static_cast<uint32_t>(found.row_dtype),
                   static_cast<uint32_t>(expected.row_dtype));
}

}  // namespace afd::schedule
