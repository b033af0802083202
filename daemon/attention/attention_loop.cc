// SPDX-License-Identifier: Apache-2.0
#include "daemon/attention/attention_loop.h"

#include <algorithm>

#include "proto/check.h"

namespace afd::daemon {

AttentionLoop::AttentionLoop(const Settings& settings,
                             const Parts& parts,
                             schedule::AdaptiveWait wait)
    : settings_(settings),
      parts_(parts),
      wait_(wait),
      probe_(parts.metrics, settings.session, parts.windows != nullptr),
      sequences_(settings.sequences_max,
                 parts.attention->config().num_layers,
                 parts.cache->num_blocks(),
                 parts.attention->config().context_length),
      batcher_({settings.num_micro_batches,
                settings.micro_batch_size,
                settings.prefill_tokens_max,
                settings.two_phase_threshold}),
      emitter_(*parts.head,
               parts.attention->config(),
               *parts.parallel,
               *parts.port,
               parts_.metrics,
               std::max(settings.micro_batch_size, settings.prefill_tokens_max)),
      workspace_(
          parts.attention->config(), settings.micro_batch_size, parts.parallel->num_threads()) {
    micro_batches_.reserve(settings.num_micro_batches + 1);
    for (uint32_t m = 0; m < settings.num_micro_batches; ++m) {
        micro_batches_.emplace_back(m, parts.attention->config(), settings.micro_batch_size);
    }
    if (settings.prefill_tokens_max > 0) {
        micro_batches_.emplace_back(
            settings.num_micro_batches, parts.attention->config(), settings.prefill_tokens_max);
    }
}

void AttentionLoop::run() {
    while (!is_stopping_) {
        bool progressed = take_commands();
        progressed |= advance_all();
        end_finished_sequences();
        parts_.port->flush();
        parts_.heartbeat.beat();
        if (!progressed) wait_for_peers();
    }
}

bool AttentionLoop::take_commands() {
    bool any = false;
    for (WorkerCommand command; parts_.port->pop_command(command); any = true) {
        switch (command.kind) {
            case WorkerCommand::Kind::kAdmit:
                admit(command.sequence);
                break;
            case WorkerCommand::Kind::kCancel:
                if (Sequence* sequence = sequences_.find(command.sequence_id)) {
                    mark_ending(*sequence, Code::kCancelled, "");
                }
                break;
            case WorkerCommand::Kind::kShutdown:
                is_stopping_ = true;
                break;
            case WorkerCommand::Kind::kSegment:  // For FFN workers.
                break;
        }
    }
    return any;
}

void AttentionLoop::admit(SequenceRequest* request) {
    const auto admitted = sequences_.admit(request);
    if (admitted.ok()) return;
    WorkerEvent event{.kind = WorkerEvent::Kind::kEnd,
                      .sequence_id = request->sequence_id,
                      .code = admitted.error().code,
                      .sequence = request};
    event.set_text("%s", admitted.error().message.c_str());
    AFD_ASSERT(parts_.port->push(event), "the event ring holds one end per sequence");
}

bool AttentionLoop::advance_all() {
    bool progressed = false;
    for (MicroBatch& micro_batch : micro_batches_) progressed |= advance(micro_batch);
    return progressed;
}

// One turn of a micro-batch: as far as it gets until it is with the experts, or waits.
bool AttentionLoop::advance(MicroBatch& micro_batch) {
    using Stage = MicroBatch::Stage;
    // Blocks go first: FFN workers compute what was sent while the shared experts run here.
    bool progressed = (is_two_phase(micro_batch) && advance_two_phase(micro_batch)) ||
                      advance_shared(micro_batch);
    if (micro_batch.stage == Stage::kExperts && moe_of(micro_batch).ready(micro_batch.ticket)) {
        combine(micro_batch);
        progressed = true;
    }
    if (micro_batch.stage == Stage::kHead && is_in_order(micro_batch)) {
        finish_step(micro_batch);
        progressed = true;
    }
    if (micro_batch.stage == Stage::kIdle) progressed |= fill(micro_batch);
    if (micro_batch.stage == Stage::kAttention && is_in_order(micro_batch)) {
        run_attention(micro_batch);
        progressed = true;
    }
    if (micro_batch.stage == Stage::kDispatch && slot_free(micro_batch)) {
        dispatch(micro_batch);
        progressed = true;
    }
    return progressed;
}

// The blocks of a two-phase round; a round that nobody wants any more ends at once, so that its
// memory goes back.
bool AttentionLoop::advance_two_phase(MicroBatch& micro_batch) {
    if (micro_batch.stage != MicroBatch::Stage::kExperts) return false;
    const auto& pieces = micro_batch.pieces();
    if (std::all_of(pieces.begin(), pieces.end(), [](const BatchPiece& piece) {
            return piece.sequence->is_ending;
        })) {
        fail(micro_batch, Code::kCancelled, "");
        return true;
    }
    if (!parts_.two_phase->advance()) return false;
    end_wait(micro_batch);
    return true;
}

// The next rows of a shared stage that does not run as a whole at the dispatch.
bool AttentionLoop::advance_shared(MicroBatch& micro_batch) {
    if (micro_batch.stage != MicroBatch::Stage::kExperts ||
        !moe_of(micro_batch).can_advance(micro_batch.ticket)) {
        return false;
    }
    parts_.heartbeat.set_computing();
    const auto advanced = moe_of(micro_batch).advance(micro_batch.ticket);
    if (!advanced.ok()) fail(micro_batch, advanced.error().code, advanced.error().message.c_str());
    return true;
}

bool AttentionLoop::fill(MicroBatch& micro_batch) {
    if (sequences_.active().empty()) return false;
    micro_batch.wants_slot = !slot_free(micro_batch);
    if (micro_batch.wants_slot) return false;
    // Every running sequence can at any time need room for its end.
    const size_t promised = events_reserved_ + sequences_.active().size();
    const size_t room = parts_.port->event_room();
    if (room <= promised) return false;
    if (is_two_phase(micro_batch)) {
        batcher_.fill_two_phase(sequences_.active(), room - promised, micro_batch.pieces());
    } else {
        batcher_.fill(sequences_.active(), room - promised, micro_batch.pieces());
    }
    if (micro_batch.pieces().empty()) return false;

    for (const BatchPiece& piece : micro_batch.pieces()) {
        Sequence& sequence = *piece.sequence;
        events_reserved_ += piece.events_reserved;
        if (sequence.is_started) continue;
        sequence.is_started = true;
        parts_.port->push(
            {.kind = WorkerEvent::Kind::kStarted, .sequence_id = sequence.request->sequence_id});
    }
    micro_batch.begin();
    probe_.began_step(micro_batch);
    parts_.head->embed(micro_batch.tokens(), micro_batch.residual());
    return true;
}

// Whether the rows before those of the micro-batch are through its layer, or through the head.
bool AttentionLoop::is_in_order(const MicroBatch& micro_batch) const {
    return std::all_of(
        micro_batch.pieces().begin(), micro_batch.pieces().end(), [&](const BatchPiece& piece) {
            const Sequence& sequence = *piece.sequence;
            return sequence.is_ending ||
                   sequence.layer_positions[micro_batch.layer] == piece.first_position;
        });
}

// At most BS rows; the two-phase lane comes back for its next tile.
void AttentionLoop::run_attention(MicroBatch& micro_batch) {
    parts_.heartbeat.set_computing();
    const uint64_t start_ns = schedule::steady_now_ns();
    const uint32_t layer = micro_batch.layer;
    const uint32_t first = micro_batch.num_attended;
    const uint32_t count = std::min(settings_.micro_batch_size, micro_batch.num_rows() - first);
    const ops::Rows<ops::Bf16> residual = micro_batch.residual().slice(first, count);
    parts_.attention->attention(layer,
                                micro_batch.attention_batch(first, count),
                                *parts_.cache,
                                residual,
                                workspace_,
                                *parts_.parallel);
    parts_.attention->pre_ffn(
        layer,
        ops::Rows<const ops::Bf16>{
            residual.data, residual.num_rows, residual.num_cols, residual.stride},
        micro_batch.ffn_input(first, count),
        workspace_,
        *parts_.parallel);
    probe_.attended(micro_batch, start_ns, count);
    micro_batch.num_attended += count;
    if (micro_batch.num_attended < micro_batch.num_rows()) return;
    micro_batch.num_attended = 0;
    for (const BatchPiece& piece : micro_batch.pieces()) {
        piece.sequence->layer_positions[layer] = piece.first_position + piece.num_rows;
    }
    if (parts_.attention->is_routed(layer)) end_poisoned(micro_batch, micro_batch.topk_weights());
    micro_batch.stage = MicroBatch::Stage::kDispatch;
}

void AttentionLoop::dispatch(MicroBatch& micro_batch) {
    end_wait(micro_batch);
    const uint64_t start_ns = schedule::steady_now_ns();
    if (is_two_phase(micro_batch)) parts_.two_phase->expect_output(micro_batch.moe_out());
    const uint32_t layer = micro_batch.layer;
    auto ticket = moe_of(micro_batch)
                      .start(micro_batch.moe_input(parts_.attention->num_shared(layer),
                                                   parts_.attention->is_routed(layer)),
                             slot_of(micro_batch));
    if (!ticket.ok()) {
        fail(micro_batch, ticket.error().code, ticket.error().message.c_str());
        return;
    }
    micro_batch.ticket = std::move(ticket).value();
    micro_batch.stage = MicroBatch::Stage::kExperts;
    probe_.dispatched(micro_batch, start_ns, round_of(micro_batch), micro_batches_);
    if (parts_.attention->config().is_moe_layer(layer) && parts_.attention->is_routed(layer)) {
        parts_.metrics.add(Counter::kExperts, micro_batch.count_experts());
    }
}

int32_t AttentionLoop::round_of(const MicroBatch& micro_batch) const {
    const bool is_in_windows = parts_.windows != nullptr && !is_two_phase(micro_batch);
    return is_in_windows ? parts_.windows->round(micro_batch.index()) : 0;
}

void AttentionLoop::combine(MicroBatch& micro_batch) {
    end_wait(micro_batch);
    const uint64_t start_ns = schedule::steady_now_ns();
    const auto finished =
        moe_of(micro_batch).finish(std::move(micro_batch.ticket), micro_batch.moe_out());
    if (!finished.ok() && is_two_phase(micro_batch)) {
        give_back(micro_batch);
        return;
    }
    if (is_two_phase(micro_batch)) parts_.metrics.add(Counter::kTwoPhaseRounds, 1);
    if (!finished.ok()) {
        fail(micro_batch, finished.error().code, finished.error().message.c_str());
        return;
    }
    if (!parts_.attention->is_routed(micro_batch.layer)) {
        end_poisoned(micro_batch, parts_.windows->topk_weights(micro_batch.index()));
    }
    model::add_residual(micro_batch.residual(), micro_batch.moe_out(), *parts_.parallel);
    probe_.combined(micro_batch, start_ns);
    ++micro_batch.layer;
    micro_batch.stage = micro_batch.layer == parts_.attention->config().num_layers
                            ? MicroBatch::Stage::kHead
                            : MicroBatch::Stage::kAttention;
}

void AttentionLoop::end_poisoned(const MicroBatch& micro_batch, const float* topk_weights) {
    micro_batch.for_each_poisoned(topk_weights, [](const BatchPiece& piece) {
        mark_ending(*piece.sequence,
                    Code::kInternal,
                    "the router's scores are not finite: check the checkpoint's weights");
    });
}

void AttentionLoop::finish_step(MicroBatch& micro_batch) {
    for (const BatchPiece& piece : micro_batch.pieces()) {
        events_reserved_ -= piece.events_reserved;
        --piece.sequence->num_in_flight;
        piece.sequence->layer_positions[micro_batch.layer] = piece.first_position + piece.num_rows;
        if (is_two_phase(micro_batch)) piece.sequence->is_two_phase = false;
    }
    parts_.heartbeat.set_computing();
    const uint64_t start_ns = schedule::steady_now_ns();
    emitter_.emit(micro_batch);
    probe_.finished_step(micro_batch, start_ns);
    micro_batch.clear();
}

void AttentionLoop::fail(MicroBatch& micro_batch, Code code, const char* text) {
    for (const BatchPiece& piece : micro_batch.pieces()) {
        events_reserved_ -= piece.events_reserved;
        --piece.sequence->num_in_flight;
        mark_ending(*piece.sequence, code, text);
    }
    micro_batch.ticket = {};
    micro_batch.clear();
}

// A two-phase batch that found no memory: its rows go through the windows instead, from the first
// layer on. No other lane has rows of these sequences behind them, and what the cache holds of them
// is overwritten with the same bits.
void AttentionLoop::give_back(MicroBatch& micro_batch) {
    for (const BatchPiece& piece : micro_batch.pieces()) {
        Sequence& sequence = *piece.sequence;
        events_reserved_ -= piece.events_reserved;
        --sequence.num_in_flight;
        sequence.num_scheduled = piece.first_position;
        for (uint32_t& position : sequence.layer_positions) {
            position = std::min(position, piece.first_position);
        }
        sequence.is_two_phase = false;
        sequence.is_windows_only = true;
    }
    parts_.metrics.add(Counter::kTwoPhaseFallbacks, 1);
    micro_batch.clear();
}

void AttentionLoop::end_finished_sequences() {
    // Backwards: releasing one closes the gap behind it.
    for (size_t i = sequences_.active().size(); i-- > 0;) {
        Sequence& sequence = *sequences_.active()[i];
        if (sequence.is_ending && sequence.num_in_flight == 0) end_sequence(sequence);
    }
    parts_.metrics.set(Counter::kSequences, sequences_.active().size());
    parts_.metrics.set(Counter::kKvTokens,
                       uint64_t{sequences_.num_kv_blocks_used()} * model::kKvBlockTokens);
}

void AttentionLoop::end_sequence(Sequence& sequence) {
    WorkerEvent event{.kind = WorkerEvent::Kind::kEnd,
                      .sequence_id = sequence.request->sequence_id,
                      .code = sequence.end_code,
                      .stopped = sequence.is_stopped};
    event.set_text("%s", sequence.end_text);
    event.sequence = sequences_.release(sequence);
    AFD_ASSERT(parts_.port->push(event), "the event ring holds one end per sequence");
}

}  // namespace afd::daemon
