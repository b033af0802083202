// SPDX-License-Identifier: Apache-2.0
#include "schedule/context/context_fields.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <type_traits>

namespace afd::schedule {
namespace {

enum class Kind { kUnsigned, kSigned, kReserved };

struct Place {
    std::string_view name;
    uint32_t offset;
    uint32_t size;
    Kind kind;
    std::string_view meaning;
};

template <typename T>
constexpr Place place(std::string_view name,
                      size_t offset,
                      const T& /*field*/,
                      std::string_view meaning) {
    const Kind kind = std::is_array_v<T>    ? Kind::kReserved
                      : std::is_signed_v<T> ? Kind::kSigned
                                            : Kind::kUnsigned;
    return {name, static_cast<uint32_t>(offset), sizeof(T), kind, meaning};
}

// Only its types are looked at: whether a field is signed and how wide it is comes from the struct,
// so a field that changes there cannot be printed by an old rule here.
constexpr ScheduleContext kShape{};
#define AFD_FIELD(field, meaning) \
    place(#field, offsetof(ScheduleContext, field), kShape.field, meaning)

constexpr std::array kPlaces{
    AFD_FIELD(common.session_num, "A: attention workers (sessions)"),
    AFD_FIELD(common.micro_batch_num, "M: micro-batches in flight for each session"),
    AFD_FIELD(common.micro_batch_size, "BS: tokens of a micro-batch"),
    AFD_FIELD(common.selected_expert_num,
              "K1: slots of a token, top-k and dispatched shared experts"),
    AFD_FIELD(
        common.expert_num,
        "routed experts of a layer, and one if the shared one is dispatched; information only"),
    AFD_FIELD(common.attn_to_ffn_token_size, "HS: bytes of a row in an FFN window"),
    AFD_FIELD(common.ffn_to_attn_token_size, "HS': bytes of a row in an attention window"),
    AFD_FIELD(common.schedule_mode, "0 this worker schedules FFN, 1 attention, 2 both (colocated)"),
    AFD_FIELD(common.reserve0, "reserved"),
    AFD_FIELD(control.run_flag, "0 ends the loops and waits of this worker"),
    AFD_FIELD(control.reserve1, "reserved"),
    AFD_FIELD(attention.token_info_buf, "offset of the flags [M][BS][K1] in the attention window"),
    AFD_FIELD(attention.token_info_buf_size, "bytes of them"),
    AFD_FIELD(attention.token_data_buf,
              "offset of the result rows [M][BS][K1][HS'] in the attention window"),
    AFD_FIELD(attention.token_data_buf_size, "bytes of them"),
    AFD_FIELD(attention.micro_batch_id, "the micro-batch whose results were taken last"),
    AFD_FIELD(attention.reserve5, "reserved"),
    AFD_FIELD(ffn.token_info_buf, "offset of the descriptors [A][M][2 + BS K1] in the FFN window"),
    AFD_FIELD(ffn.token_info_buf_size, "bytes of them"),
    AFD_FIELD(ffn.token_data_buf, "offset of the token rows [A][M][BS][K1][HS] in the FFN window"),
    AFD_FIELD(ffn.token_data_buf_size, "bytes of them"),
    AFD_FIELD(ffn.polling_index,
              "the micro-batch after the one taken last; policy all takes it next"),
    AFD_FIELD(ffn.reserve3, "reserved"),
    AFD_FIELD(ffn.layer_ids_buf, "offset of the layers taken [A] in the FFN control segment"),
    AFD_FIELD(ffn.layer_ids_buf_size, "bytes of them"),
    AFD_FIELD(ffn.session_ids_buf, "offset of the sessions taken [A]"),
    AFD_FIELD(ffn.session_ids_buf_size, "bytes of them"),
    AFD_FIELD(ffn.micro_batch_ids_buf, "offset of the micro-batches taken [A]"),
    AFD_FIELD(ffn.micro_batch_ids_buf_size, "bytes of them"),
    AFD_FIELD(ffn.expert_ids_buf, "offset of the expert ids taken [A][BS][K1]"),
    AFD_FIELD(ffn.expert_ids_buf_size, "bytes of them"),
    AFD_FIELD(ffn.out_num, "descriptors of the pass in work, 0 between passes"),
    AFD_FIELD(ffn.reserve4, "reserved"),
    AFD_FIELD(reserve6, "reserved"),
};

#undef AFD_FIELD

template <typename T>
T read(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
}

std::string value_of(const Place& place, const std::byte* context) {
    const std::byte* from = context + place.offset;
    if (place.kind == Kind::kReserved) {
        const std::span bytes(from, place.size);
        // Reserved bytes are ignored by readers (the specification, section 1), but an observer
        // should see that somebody wrote there.
        const bool is_zero = std::all_of(
            bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; });
        return is_zero ? "0" : "not zero";
    }
    if (place.kind == Kind::kSigned) return std::to_string(read<int32_t>(from));
    return place.size == sizeof(uint64_t) ? std::to_string(read<uint64_t>(from))
                                          : std::to_string(read<uint32_t>(from));
}

}  // namespace

std::vector<ContextField> context_fields(const ScheduleContext& context) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&context);
    std::vector<ContextField> fields;
    fields.reserve(kPlaces.size());
    for (const Place& place : kPlaces) {
        fields.push_back(
            {place.name, place.offset, place.size, value_of(place, bytes), place.meaning});
    }
    return fields;
}

}  // namespace afd::schedule
