// SPDX-License-Identifier: Apache-2.0
#include "schedule/shm_transport.h"

#include <cstring>
#include <utility>

#include "schedule/round.h"

namespace afd::schedule {
namespace {

template <typename T>
T* at(std::byte* base, uint64_t offset) {
    return static_cast<T*>(static_cast<void*>(base + offset));
}

template <typename T>
const T* at(const std::byte* base, uint64_t offset) {
    return static_cast<const T*>(static_cast<const void*>(base + offset));
}

void assert_slot(const Geometry& geometry, uint32_t micro_batch, uint32_t token_idx, uint32_t k) {
    AFD_ASSERT(micro_batch < geometry.num_micro_batches && token_idx < geometry.micro_batch_size &&
                   k < geometry.selected_expert_num,
               "slot [%u][%u][%u] of a window of [%u][%u][%u]",
               micro_batch,
               token_idx,
               k,
               geometry.num_micro_batches,
               geometry.micro_batch_size,
               geometry.selected_expert_num);
}

Result<> check_config(
    const AttachConfig& config, Role role, uint32_t index, uint32_t num_own, uint32_t num_peers) {
    if (index >= num_own) {
        return Error{Code::kInvalidArgument,
                     std::string(role_index_name(role)) + " " + std::to_string(index) +
                         " does not exist; the instance has " + std::to_string(num_own)};
    }
    if (config.peer_doorbells.size() != num_peers || config.own_doorbell < 0) {
        return Error{Code::kInvalidArgument,
                     "attach needs its own doorbell and one for each of " +
                         std::to_string(num_peers) + " peers; it got " +
                         std::to_string(config.peer_doorbells.size())};
    }
    return {};
}

// Maps one control segment, compares its header, and enters all of it into the page tables.
Result<Segment> attach_control(const AttachConfig& config,
                               Role role,
                               uint32_t index,
                               Segment::Access access) {
    const uint64_t bytes = role == Role::kFfn ? config.layout.ffn_control.total_bytes
                                              : config.layout.attention_control_bytes;
    const std::string name = segment_name(config.prefix, role, index, SegmentKind::kControl);
    AFD_ASSIGN(Segment control, Segment::attach(name, bytes, access));
    AFD_ASSIGN(const SegmentHeader expected,
               make_segment_header(config.layout.geometry, config.identity, role, index));
    const SegmentHeader found = ConstControlView(control.const_data()).header();
    if (Result<> checked = check(found, expected); !checked.ok()) {
        return Error{checked.error().code, name + ": " + checked.error().message};
    }
    AFD_TRY(control.prefault(0, bytes));
    return control;
}

Result<Segment> attach_window(const AttachConfig& config,
                              Role role,
                              uint32_t index,
                              Segment::Access access) {
    const uint64_t bytes = role == Role::kFfn ? config.layout.ffn_window.total_bytes
                                              : config.layout.attention_window.total_bytes;
    return Segment::attach(
        segment_name(config.prefix, role, index, SegmentKind::kWindow), bytes, access);
}

// The stripe of one session in an FFN window: its descriptors and its rows.
Result<> prefault_stripe(const Segment& window, const WindowLayout& layout, uint32_t session) {
    const uint64_t num_sessions = layout.geometry.num_sessions;
    AFD_TRY(window.prefault(layout.descriptor_offset(session, 0),
                            layout.ffn_window.info_bytes / num_sessions));
    return window.prefault(layout.token_row_offset(session, 0, 0, 0),
                           layout.ffn_window.data_bytes / num_sessions);
}

}  // namespace

Result<std::unique_ptr<ShmDispatchTransport>> ShmDispatchTransport::attach(
    const AttachConfig& config, uint32_t session) {
    constexpr auto kReadOnly = Segment::Access::kReadOnly;
    constexpr auto kReadWrite = Segment::Access::kReadWrite;
    const Geometry& geometry = config.layout.geometry;
    AFD_TRY(check_config(
        config, Role::kAttention, session, geometry.num_sessions, geometry.num_ffn_workers));
    std::vector<Segment> segments;
    AFD_ASSIGN(Segment control, attach_control(config, Role::kAttention, session, kReadWrite));
    AFD_ASSIGN(Segment window, attach_window(config, Role::kAttention, session, kReadOnly));
    AFD_TRY(window.prefault(0, window.size()));
    std::vector<FfnRankMemory> ranks;
    for (uint32_t rank = 0; rank < geometry.num_ffn_workers; ++rank) {
        AFD_ASSIGN(Segment rank_control, attach_control(config, Role::kFfn, rank, kReadOnly));
        AFD_ASSIGN(Segment rank_window, attach_window(config, Role::kFfn, rank, kReadWrite));
        AFD_TRY(prefault_stripe(rank_window, config.layout, session));
        ranks.push_back({rank_window.data(), rank_control.const_data()});
        segments.push_back(std::move(rank_control));
        segments.push_back(std::move(rank_window));
    }
    auto transport = std::make_unique<ShmDispatchTransport>(config.layout,
                                                            session,
                                                            window.const_data(),
                                                            control.data(),
                                                            std::move(ranks),
                                                            config.own_doorbell,
                                                            config.peer_doorbells);
    segments.push_back(std::move(control));
    segments.push_back(std::move(window));
    transport->segments_ = std::move(segments);
    return transport;
}

ShmDispatchTransport::ShmDispatchTransport(const WindowLayout& layout,
                                           uint32_t session,
                                           const std::byte* own_window,
                                           std::byte* own_control,
                                           std::vector<FfnRankMemory> ranks,
                                           int own_doorbell,
                                           const std::vector<int>& rank_doorbells)
    : layout_(layout),
      session_(session),
      window_(own_window),
      control_(own_control),
      ranks_(std::move(ranks)),
      own_doorbell_(own_doorbell),
      observers_(ranks_.size()) {
    AFD_ASSERT(
        ranks_.size() == layout.geometry.num_ffn_workers && rank_doorbells.size() == ranks_.size(),
        "%zu ranks and %zu doorbells for %u FFN workers",
        ranks_.size(),
        rank_doorbells.size(),
        layout.geometry.num_ffn_workers);
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        ringers_.emplace_back(ConstControlView(ranks_[rank].control).armed(), rank_doorbells[rank]);
    }
}

int32_t* ShmDispatchTransport::descriptor(uint32_t rank, uint32_t micro_batch) const {
    AFD_ASSERT(rank < ranks_.size() && micro_batch < layout_.geometry.num_micro_batches,
               "descriptor of rank %u of %zu, micro-batch %u of %u",
               rank,
               ranks_.size(),
               micro_batch,
               layout_.geometry.num_micro_batches);
    return at<int32_t>(ranks_[rank].window, layout_.descriptor_offset(session_, micro_batch));
}

void ShmDispatchTransport::put_row(uint32_t rank,
                                   uint32_t micro_batch,
                                   uint32_t token_idx,
                                   uint32_t k,
                                   std::span<const std::byte> row) {
    assert_slot(layout_.geometry, micro_batch, token_idx, k);
    AFD_ASSERT(rank < ranks_.size() && row.size() <= layout_.geometry.attn_to_ffn_token_bytes,
               "row of %zu bytes to rank %u of %zu; HS is %u",
               row.size(),
               rank,
               ranks_.size(),
               layout_.geometry.attn_to_ffn_token_bytes);
    std::memcpy(ranks_[rank].window + layout_.token_row_offset(session_, micro_batch, token_idx, k),
                row.data(),
                row.size());
}

void ShmDispatchTransport::publish(uint32_t rank,
                                   uint32_t micro_batch,
                                   int32_t layer_id,
                                   std::span<const int32_t> ids,
                                   int32_t round) {
    AFD_ASSERT(ids.size() == layout_.geometry.slots_per_micro_batch() && round > 0,
               "%zu ids, round %d",
               ids.size(),
               round);
    int32_t* words = descriptor(rank, micro_batch);
    std::memcpy(words + kDescriptorIdsWord, ids.data(), ids.size_bytes());
    words[1] = layer_id;
    publish_seq_cst(words[0], round);
    ringers_[rank].ring_if_armed();
}

int32_t ShmDispatchTransport::descriptor_flag(uint32_t rank, uint32_t micro_batch) const {
    return observe_own(*descriptor(rank, micro_batch));
}

int32_t ShmDispatchTransport::acknowledged(uint32_t rank, uint32_t micro_batch, Order order) const {
    AFD_ASSERT(rank < ranks_.size() && micro_batch < layout_.geometry.num_micro_batches,
               "acknowledgement of rank %u, micro-batch %u",
               rank,
               micro_batch);
    const uint64_t offset = layout_.acknowledged_offset(session_, micro_batch);
    return observe(*at<int32_t>(ranks_[rank].control, offset), order);
}

const int32_t* ShmDispatchTransport::result_flags(uint32_t micro_batch) const {
    assert_slot(layout_.geometry, micro_batch, 0, 0);
    return at<int32_t>(window_, layout_.result_flag_offset(micro_batch, 0, 0));
}

std::span<const std::byte> ShmDispatchTransport::result_row(uint32_t micro_batch,
                                                            uint32_t token_idx,
                                                            uint32_t k) const {
    assert_slot(layout_.geometry, micro_batch, token_idx, k);
    return {window_ + layout_.result_row_offset(micro_batch, token_idx, k),
            layout_.geometry.ffn_to_attn_token_bytes};
}

PeerState ShmDispatchTransport::peer(uint32_t rank, uint64_t now_us) {
    AFD_ASSERT(rank < ranks_.size(), "rank %u of %zu", rank, ranks_.size());
    PeerState state;
    state.heartbeat = read_heartbeat(ConstControlView(ranks_[rank].control).heartbeat_words());
    state.heartbeat_age_us = observers_[rank].observe(state.heartbeat, now_us);
    return state;
}

void ShmDispatchTransport::ring_peers() {
    for (const DoorbellRinger& ringer : ringers_) ringer.ring();
}

Result<std::unique_ptr<ShmReturnTransport>> ShmReturnTransport::attach(const AttachConfig& config,
                                                                       uint32_t rank) {
    constexpr auto kReadOnly = Segment::Access::kReadOnly;
    constexpr auto kReadWrite = Segment::Access::kReadWrite;
    const Geometry& geometry = config.layout.geometry;
    AFD_TRY(
        check_config(config, Role::kFfn, rank, geometry.num_ffn_workers, geometry.num_sessions));
    std::vector<Segment> segments;
    AFD_ASSIGN(Segment control, attach_control(config, Role::kFfn, rank, kReadWrite));
    AFD_ASSIGN(Segment window, attach_window(config, Role::kFfn, rank, kReadOnly));
    AFD_TRY(window.prefault(0, window.size()));
    std::vector<SessionMemory> sessions;
    for (uint32_t session = 0; session < geometry.num_sessions; ++session) {
        AFD_ASSIGN(Segment session_control,
                   attach_control(config, Role::kAttention, session, kReadOnly));
        AFD_ASSIGN(Segment session_window,
                   attach_window(config, Role::kAttention, session, kReadWrite));
        AFD_TRY(session_window.prefault(0, session_window.size()));
        sessions.push_back({session_window.data(), session_control.const_data()});
        segments.push_back(std::move(session_control));
        segments.push_back(std::move(session_window));
    }
    auto transport = std::make_unique<ShmReturnTransport>(config.layout,
                                                          rank,
                                                          window.const_data(),
                                                          control.data(),
                                                          std::move(sessions),
                                                          config.own_doorbell,
                                                          config.peer_doorbells);
    segments.push_back(std::move(control));
    segments.push_back(std::move(window));
    transport->segments_ = std::move(segments);
    return transport;
}

ShmReturnTransport::ShmReturnTransport(const WindowLayout& layout,
                                       uint32_t rank,
                                       const std::byte* own_window,
                                       std::byte* own_control,
                                       std::vector<SessionMemory> sessions,
                                       int own_doorbell,
                                       const std::vector<int>& session_doorbells)
    : layout_(layout),
      rank_(rank),
      window_(own_window),
      control_(own_control),
      sessions_(std::move(sessions)),
      own_doorbell_(own_doorbell),
      observers_(sessions_.size()) {
    AFD_ASSERT(sessions_.size() == layout.geometry.num_sessions &&
                   session_doorbells.size() == sessions_.size(),
               "%zu session memories and %zu doorbells for %u sessions",
               sessions_.size(),
               session_doorbells.size(),
               layout.geometry.num_sessions);
    for (size_t session = 0; session < sessions_.size(); ++session) {
        ringers_.emplace_back(ConstControlView(sessions_[session].control).armed(),
                              session_doorbells[session]);
    }
}

const int32_t* ShmReturnTransport::descriptor(uint32_t session, uint32_t micro_batch) const {
    AFD_ASSERT(session < sessions_.size() && micro_batch < layout_.geometry.num_micro_batches,
               "descriptor of session %u of %zu, micro-batch %u of %u",
               session,
               sessions_.size(),
               micro_batch,
               layout_.geometry.num_micro_batches);
    return at<int32_t>(window_, layout_.descriptor_offset(session, micro_batch));
}

int32_t* ShmReturnTransport::result_flag(uint32_t session,
                                         uint32_t micro_batch,
                                         uint32_t token_idx,
                                         uint32_t k) {
    AFD_ASSERT(session < sessions_.size(), "session %u of %zu", session, sessions_.size());
    assert_slot(layout_.geometry, micro_batch, token_idx, k);
    return at<int32_t>(sessions_[session].window,
                       layout_.result_flag_offset(micro_batch, token_idx, k));
}

DescriptorFlags ShmReturnTransport::descriptor_flags() const {
    return {descriptor(0, 0), layout_.ffn_window.descriptor_bytes / sizeof(int32_t)};
}

int32_t ShmReturnTransport::acknowledged(uint32_t session, uint32_t micro_batch) const {
    const uint64_t offset = layout_.acknowledged_offset(session, micro_batch);
    return observe_own(*at<int32_t>(control_.base(), offset));
}

int32_t ShmReturnTransport::layer_id(uint32_t session, uint32_t micro_batch) const {
    int32_t layer_id = 0;
    std::memcpy(&layer_id, descriptor(session, micro_batch) + 1, sizeof(layer_id));
    return layer_id;
}

void ShmReturnTransport::copy_ids(uint32_t session,
                                  uint32_t micro_batch,
                                  std::span<int32_t> ids) const {
    AFD_ASSERT(ids.size() == layout_.geometry.slots_per_micro_batch(), "%zu ids", ids.size());
    std::memcpy(
        ids.data(), descriptor(session, micro_batch) + kDescriptorIdsWord, ids.size_bytes());
}

const std::byte* ShmReturnTransport::token_row(uint32_t session,
                                               uint32_t micro_batch,
                                               uint32_t token_idx,
                                               uint32_t k) const {
    AFD_ASSERT(session < sessions_.size(), "session %u of %zu", session, sessions_.size());
    assert_slot(layout_.geometry, micro_batch, token_idx, k);
    return window_ + layout_.token_row_offset(session, micro_batch, token_idx, k);
}

void ShmReturnTransport::put_result(uint32_t session,
                                    uint32_t micro_batch,
                                    uint32_t token_idx,
                                    uint32_t k,
                                    std::span<const std::byte> row,
                                    int32_t round) {
    AFD_ASSERT(round > 0 && row.size() <= layout_.geometry.ffn_to_attn_token_bytes,
               "round %d, row of %zu bytes; HS' is %u",
               round,
               row.size(),
               layout_.geometry.ffn_to_attn_token_bytes);
    int32_t* flag = result_flag(session, micro_batch, token_idx, k);
    if (carries_round(observe(*flag, Order::kAcquire), round)) return;
    std::memcpy(sessions_[session].window + layout_.result_row_offset(micro_batch, token_idx, k),
                row.data(),
                row.size());
    publish_release(*flag, round);
}

void ShmReturnTransport::put_refusal(
    uint32_t session, uint32_t micro_batch, uint32_t token_idx, uint32_t k, int32_t round) {
    AFD_ASSERT(round > 0, "round %d", round);
    int32_t* flag = result_flag(session, micro_batch, token_idx, k);
    if (carries_round(observe(*flag, Order::kAcquire), round)) return;
    publish_release(*flag, refused_mark(round));
}

void ShmReturnTransport::acknowledge(uint32_t session, uint32_t micro_batch, int32_t round) {
    AFD_ASSERT(session < sessions_.size() && micro_batch < layout_.geometry.num_micro_batches,
               "acknowledgement of session %u, micro-batch %u",
               session,
               micro_batch);
    const uint64_t offset = layout_.acknowledged_offset(session, micro_batch);
    publish_seq_cst(*at<int32_t>(control_.base(), offset), round);
    ringers_[session].ring_if_armed();
}

PeerState ShmReturnTransport::peer(uint32_t session, uint64_t now_us) {
    AFD_ASSERT(session < sessions_.size(), "session %u of %zu", session, sessions_.size());
    PeerState state;
    state.heartbeat =
        read_heartbeat(ConstControlView(sessions_[session].control).heartbeat_words());
    state.heartbeat_age_us = observers_[session].observe(state.heartbeat, now_us);
    return state;
}

void ShmReturnTransport::ring_peers() {
    for (const DoorbellRinger& ringer : ringers_) ringer.ring();
}

}  // namespace afd::schedule
