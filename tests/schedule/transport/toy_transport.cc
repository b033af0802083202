// SPDX-License-Identifier: Apache-2.0
#include "tests/schedule/transport/toy_transport.h"

#include <utility>
#include <vector>

#include "schedule/layout/round.h"
#include "tests/schedule/transport/toy_two_phase.h"

namespace afd::schedule {

namespace {

EndpointMemory end_of(const Bytes& control,
                      int doorbell,
                      const std::vector<HeartbeatWords>& mirrors) {
    EndpointMemory memory{control.get(), doorbell, {}};
    for (const HeartbeatWords& words : mirrors) memory.peer_heartbeats.push_back(&words);
    return memory;
}

std::vector<RankMirror> mirrors_of(const ToySession& machine) {
    std::vector<RankMirror> mirrors;
    for (size_t rank = 0; rank < machine.published.size(); ++rank) {
        mirrors.push_back({{machine.published[rank].data(), 1}, machine.acknowledged[rank].data()});
    }
    return mirrors;
}

}  // namespace

ToyDispatch::ToyDispatch(ToyMachines& machines, uint32_t session)
    : DispatchTransport(machines.layout(),
                        session,
                        machines.session(session).window.get(),
                        end_of(machines.session(session).control,
                               machines.session_doorbells()[session],
                               machines.session(session).ranks),
                        mirrors_of(machines.session(session))),
      machines_(machines) {}

void ToyDispatch::put_row(uint32_t rank,
                          uint32_t micro_batch,
                          uint32_t token_idx,
                          uint32_t k,
                          std::span<const std::byte> row) {
    assert_row(rank, micro_batch, token_idx, k, row.size());
    std::byte* to = machines_.rank(rank).window.get() +
                    layout().token_row_offset(session(), micro_batch, token_idx, k);
    send(rank, micro_batch, false, [to, row = ToyPayload(row)] { row.store(to); });
}

void ToyDispatch::publish(uint32_t rank,
                          uint32_t micro_batch,
                          int32_t layer_id,
                          std::span<const int32_t> ids,
                          int32_t round) {
    assert_publication(rank, micro_batch, ids, round);
    publish_release(machines_.session(session()).published[rank][micro_batch], round);
    int32_t* to = machines_.descriptor(rank, session(), micro_batch);
    ToyPayload sent_ids(std::as_bytes(ids));
    send(rank,
         micro_batch,
         true,
         [&machines = machines_, rank, to, layer_id, round, ids = std::move(sent_ids)] {
             ids.store(to + kDescriptorIdsWord);
             to[1] = layer_id;
             publish_seq_cst(*to, round);
             machines.ring_if_armed(Role::kFfn, rank);
         });
}

Result<std::unique_ptr<TwoPhaseDispatchTransport>> ToyDispatch::two_phase() {
    return make_toy_two_phase_dispatch(machines_, session());
}

void ToyDispatch::ring_peers() {
    for (const int fd : machines_.rank_doorbells().all()) ring(fd);
}

void ToyDispatch::send(uint32_t rank, uint32_t micro_batch, bool is_barrier, ToyWire::Store store) {
    machines_.wire().send(
        {Role::kAttention, session(), rank, micro_batch}, std::move(store), is_barrier);
}

ToyReturn::ToyReturn(ToyMachines& machines, uint32_t rank)
    : ReturnTransport(machines.layout(),
                      rank,
                      machines.rank(rank).window.get(),
                      end_of(machines.rank(rank).control,
                             machines.rank_doorbells()[rank],
                             machines.rank(rank).sessions)),
      machines_(machines) {}

void ToyReturn::put_result(uint32_t session,
                           uint32_t micro_batch,
                           uint32_t token_idx,
                           uint32_t k,
                           std::span<const std::byte> row,
                           int32_t round) {
    assert_result(session, micro_batch, token_idx, k, row.size(), round);
    std::byte* to = machines_.session(session).window.get() +
                    layout().result_row_offset(micro_batch, token_idx, k);
    int32_t* flag = machines_.result_flag(session, micro_batch, token_idx, k);
    send(session, micro_batch, false, [to, flag, round, row = ToyPayload(row)] {
        // R3, looked at where the flag is.
        if (carries_round(observe_own(*flag), round)) return;
        row.store(to);
        publish_release(*flag, round);
    });
}

void ToyReturn::put_refusal(
    uint32_t session, uint32_t micro_batch, uint32_t token_idx, uint32_t k, int32_t round) {
    assert_result(session, micro_batch, token_idx, k, 0, round);
    int32_t* flag = machines_.result_flag(session, micro_batch, token_idx, k);
    send(session, micro_batch, false, [flag, round] {
        if (carries_round(observe_own(*flag), round)) return;
        publish_release(*flag, refused_mark(round));
    });
}

void ToyReturn::acknowledge(uint32_t session, uint32_t micro_batch, int32_t round) {
    publish_release(acknowledged_word(session, micro_batch), round);
    int32_t* mirror = machines_.acknowledged(rank(), session, micro_batch);
    send(session, micro_batch, true, [&machines = machines_, session, mirror, round] {
        publish_seq_cst(*mirror, round);
        machines.ring_if_armed(Role::kAttention, session);
    });
}

Result<std::unique_ptr<TwoPhaseReturnTransport>> ToyReturn::two_phase() {
    return make_toy_two_phase_return(machines_, rank());
}

void ToyReturn::ring_peers() {
    for (const int fd : machines_.session_doorbells().all()) ring(fd);
}

void ToyReturn::connect() {
    for (uint32_t s = 0; s < machines_.num_sessions(); ++s) {
        for (uint32_t m = 0; m < layout().geometry.num_micro_batches; ++m) {
            acknowledged_word(s, m) = observe_own(*machines_.acknowledged(rank(), s, m));
        }
    }
}

void ToyReturn::send(uint32_t session,
                     uint32_t micro_batch,
                     bool is_barrier,
                     ToyWire::Store store) {
    machines_.wire().send({Role::kFfn, rank(), session, micro_batch}, std::move(store), is_barrier);
}

}  // namespace afd::schedule
