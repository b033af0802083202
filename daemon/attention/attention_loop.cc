// SPDX-License-Identifier: Apache-2.0
#include "daemon/attention/attention_loop.h"

#include <fmt/core.h>

#include <algorithm>

#include "daemon/program/logging.h"
#include "model/attention/attention_config.h"
#include "model/attention/layer_windows.h"
#include "proto/check.h"
#include "proto/crash_point.h"

namespace afd::daemon {
namespace {

using Lanes = std::span<const std::unique_ptr<ExpertLane>>;

// Whether the rows are routed here, or on their way to the experts.
model::RouterUse router_use(const MicroBatch& micro_batch) {
    return micro_batch.lane().traits().routes ? model::RouterUse::kLeave : model::RouterUse::kRoute;
}

Batcher::Limits batcher_limits(const AttentionLoop::Settings& settings, Lanes lanes) {
    Batcher::Limits limits{.num_micro_batches = 0,
                           .micro_batch_size = settings.micro_batch_size,
                           .long_prompt_threshold = settings.long_prompt_threshold};
    for (const auto& lane : lanes) {
        const LaneTraits& traits = lane->traits();
        if (traits.rows == LaneRows::kLongPrompts) {
            AFD_ASSERT(limits.long_lane_rows == 0, "two lanes take long prompts");
            limits.long_lane_rows = traits.rows_max;
        } else {
            AFD_ASSERT(traits.rows_max == settings.micro_batch_size,
                       "a lane of %u rows, micro-batches have %u",
                       traits.rows_max,
                       settings.micro_batch_size);
            ++limits.num_micro_batches;
        }
    }
    // The lane of long prompts takes none, and give_back() needs another one to give to.
    AFD_ASSERT(limits.num_micro_batches > 0, "no lane takes decoding rows");
    return limits;
}

// Positions that the rows of one tile attend to together.
size_t tile_positions(const AttentionLoop::Settings& settings, const AttentionLoop::Parts& parts) {
    const size_t products = parts.parallel->num_threads() * settings.tile_products;
    return std::max<size_t>(products / parts.attention->products_per_position(), 1);
}

WindowedBlocks windowed_blocks(const AttentionLoop::Parts& parts) {
    return {.num_blocks = parts.cache->num_windowed_blocks(),
            .window = model::LayerWindows::of(parts.attention->config()).window};
}

}  // namespace

AttentionLoop::AttentionLoop(const Settings& settings,
                             const Parts& parts,
                             schedule::AdaptiveWait wait)
    : settings_(settings),
      parts_(parts),
      wait_(wait),
      lived_(kIdleTickUs),
      probe_(parts.metrics, settings.session),
      sequences_(settings.sequences_max,
                 parts.attention->config().num_layers,
                 parts.cache->num_blocks(),
                 parts.attention->config().context_length,
                 settings.has_prefix_cache,
                 parts.attention->config().attention->window(),
                 windowed_blocks(parts)),
      batcher_(batcher_limits(settings, parts.lanes)),
      tile_positions_(tile_positions(settings, parts)),
      emitter_(
          *parts.head, parts.attention->config(), *parts.parallel, *parts.port, parts_.metrics),
      workspace_(*parts.attention, settings.micro_batch_size, parts.parallel->num_threads()) {
    micro_batches_.reserve(parts.lanes.size());
    for (uint32_t m = 0; m < parts.lanes.size(); ++m) {
        micro_batches_.emplace_back(m, parts.attention->config(), *parts.lanes[m]);
    }
}

void AttentionLoop::run() {
    // run_flag is for a loop that is busy; one that sleeps is told by afdd.
    while (!is_stopping_ && parts_.words.run_flag()) {
        bool progressed = take_commands();
        progressed |= let_go_of_lost_ranks();
        // In front of the advance, which uses the blocks that it hands out.
        progressed |= make_room();
        progressed |= advance_all();
        progressed |= end_finished_sequences();
        parts_.port->flush();
        parts_.heartbeat.beat();
        lived_.at(parts_.now_us());
        if (!progressed) wait_for_peers();
    }
}

bool AttentionLoop::take_commands() {
    bool any = admit_held();
    for (WorkerCommand command; held_ == nullptr && parts_.port->pop_command(command); any = true) {
        switch (command.kind) {
            case WorkerCommand::Kind::kAdmit:
                held_ = std::move(command.sequence);
                admit_held();
                break;
            case WorkerCommand::Kind::kCancel:
                // Not found: it ended while the Cancel was on its way.
                if (Sequence* sequence = sequences_.find(command.sequence_id)) {
                    mark_ending(*sequence, Code::kCancelled, "");
                }
                break;
            case WorkerCommand::Kind::kShutdown:
                is_stopping_ = true;
                break;
            case WorkerCommand::Kind::kRankState:
                on_rank_state(command.rank, command.is_lost);
                break;
            case WorkerCommand::Kind::kVoidAnswer:
                on_void_answer(command);
                break;
            case WorkerCommand::Kind::kSegment:
                for (const auto& lane : parts_.lanes) lane->take_segments(command);
                break;
        }
    }
    return any;
}

// An admission costs an event, whether it runs or is refused: its end. While there is no place for
// it, it waits, and the commands behind it: the control thread does not read either.
bool AttentionLoop::admit_held() {
    if (held_ == nullptr || !has_event_room()) return false;
    const auto admitted = sequences_.admit(held_);
    AFD_CRASH_POINT("admit.taken");
    if (admitted.ok()) return true;
    WorkerEvent event{.kind = WorkerEvent::Kind::kEnd,
                      .sequence_id = held_->sequence_id,
                      .code = admitted.error().code};
    event.set_text("%s", admitted.error().message.c_str());
    if (sequences_.fits_alone(*held_)) {
        event.code = Code::kCancelled;
        event.gave_way = true;
    }
    event.sequence = std::move(held_);
    AFD_ASSERT(parts_.port->push(std::move(event)), "the event ring holds one end per sequence");
    return true;
}

// Whether an event can be pushed beyond those that rows in flight and running sequences may yield.
bool AttentionLoop::has_event_room() const {
    return parts_.port->event_room() > events_reserved_ + sequences_.active().size();
}

// Where a token finds no room the youngest sequence gives way. Its rows may be on their way still:
// what they yield is dropped, and produced again when it goes on, the same.
bool AttentionLoop::make_room() {
    Sequence* youngest = sequences_.make_room();
    if (youngest == nullptr) return false;
    if (sequences_.active().size() == 1) {
        // afdd refuses what does not fit alone, so this is a disagreement about the sizes.
        mark_ending(*youngest, Code::kResourceExhausted, "the KV cache is full; raise kv_tokens");
        return true;
    }
    youngest->gives_way = true;
    mark_ending(*youngest, Code::kCancelled, "");
    AFD_CRASH_POINT("preempt.marked");
    return true;
}

bool AttentionLoop::advance_all() {
    bool progressed = false;
    for (MicroBatch& micro_batch : micro_batches_) progressed |= advance(micro_batch);
    return progressed;
}

// One turn of a micro-batch: as far as it gets until it is with the experts, or waits.
bool AttentionLoop::advance(MicroBatch& micro_batch) {
    using Stage = MicroBatch::Stage;
    bool progressed = drop_if_unwanted(micro_batch);
    progressed |= leave_lost_rank(micro_batch);
    if (micro_batch.stage == Stage::kExperts) progressed |= advance_experts(micro_batch);
    if (micro_batch.stage == Stage::kExperts && micro_batch.lane().ready()) {
        combine(micro_batch);
        progressed = true;
    }
    // From the last stage to the first: what comes free in this turn is filled and sent on in the
    // same turn, before the loop looks at the others.
    if (micro_batch.stage == Stage::kHead && is_in_order(micro_batch)) {
        run_head(micro_batch);
        progressed = true;
    }
    if (micro_batch.stage == Stage::kIdle) progressed |= fill(micro_batch);
    if (micro_batch.stage == Stage::kAttention && is_in_order(micro_batch)) {
        run_attention(micro_batch);
        progressed = true;
    }
    if (micro_batch.stage == Stage::kDispatch && micro_batch.lane().is_free()) {
        dispatch(micro_batch);
        progressed = true;
    }
    return progressed;
}

// Rows that nobody wants any more end at once: their memory goes back, and a cancelled request does
// not wait for a peer that is gone. The lane stays blocked as long as it must (R4).
bool AttentionLoop::drop_if_unwanted(MicroBatch& micro_batch) {
    if (micro_batch.stage == MicroBatch::Stage::kIdle) return false;
    const auto& pieces = micro_batch.pieces();
    if (!std::all_of(pieces.begin(), pieces.end(), [](const BatchPiece& piece) {
            return piece.sequence->is_ending;
        })) {
        return false;
    }
    fail(micro_batch, Code::kCancelled, "");
    return true;
}

// One step of a call that does not go by itself: a block of a round, a tile of the shared experts.
bool AttentionLoop::advance_experts(MicroBatch& micro_batch) {
    if (!micro_batch.lane().can_advance()) return false;
    parts_.heartbeat.set_computing();
    end_wait(micro_batch);
    const uint64_t start_ns = schedule::steady_now_ns();
    const auto advanced = micro_batch.lane().advance();
    probe_.advanced(start_ns);
    if (!advanced.ok()) fail(micro_batch, advanced.error().code, advanced.error().message.c_str());
    return true;
}

bool AttentionLoop::fill(MicroBatch& micro_batch) {
    const bool has_work = !sequences_.active().empty();
    micro_batch.wants_lane = has_work && !micro_batch.lane().is_free();
    if (!has_work || micro_batch.wants_lane) return false;
    // Every running sequence can at any time need room for its end, and so can those that are
    // admitted while the rows are in flight.
    const size_t promised = events_reserved_ + settings_.sequences_max;
    const size_t room = parts_.port->event_room();
    if (room <= promised) return false;
    sequences_.look_for_prefixes();
    batcher_.fill(micro_batch.lane().traits().rows,
                  sequences_.active(),
                  room - promised,
                  micro_batch.pieces());
    if (micro_batch.pieces().empty()) return false;

    for (const BatchPiece& piece : micro_batch.pieces()) {
        Sequence& sequence = *piece.sequence;
        events_reserved_ += piece.events_reserved;
        sequence.blocked_since_us = 0;
        if (sequence.is_started) continue;
        sequence.is_started = true;
        if (sequence.num_tokens() > sequence.request->num_prompt_tokens) {
            AFD_CRASH_POINT("replay.started");
        }
        parts_.metrics.add(Counter::kPrefixQueries, sequence.num_tokens());
        parts_.metrics.add(Counter::kPrefixHits, sequence.num_cached_tokens);
        parts_.port->push({.kind = WorkerEvent::Kind::kStarted,
                           .token = sequence.num_cached_tokens,
                           .sequence_id = sequence.request->sequence_id});
    }
    // Somebody computes again. A loop that is busy from now on would not see it: it never waits.
    for (Sequence* sequence : sequences_.active()) {
        if (sequence->awaits_prefix) sequence->blocked_since_us = 0;
    }
    end_wait(micro_batch);
    micro_batch.begin();
    probe_.began_step(micro_batch);
    parts_.head->embed(micro_batch.tokens(), micro_batch.residual());
    for (const int32_t token : micro_batch.tokens()) {
        AFD_CRASH_POINT_OF("embed.token_done", static_cast<uint64_t>(token));
    }
    return true;
}

// Whether the rows before those of the micro-batch are through its layer, or through the head.
bool AttentionLoop::is_in_order(const MicroBatch& micro_batch) const {
    return std::all_of(
        micro_batch.pieces().begin(), micro_batch.pieces().end(), [&](const BatchPiece& piece) {
            // Chunks of one prompt overtake each other in the lanes, but attention of a layer needs
            // the keys of all earlier rows, and prompt log probabilities are reported in order of
            // position.
            const Sequence& sequence = *piece.sequence;
            return sequence.is_ending ||
                   sequence.layer_positions[micro_batch.layer] == piece.first_position;
        });
}

// At most BS rows, and fewer where they attend to many positions; a larger micro-batch comes back
// for its next tile. In between the loop takes commands: a cancel does not wait for a whole layer
// of a long prompt.
void AttentionLoop::run_attention(MicroBatch& micro_batch) {
    parts_.heartbeat.set_computing();
    const uint64_t start_ns = schedule::steady_now_ns();
    const uint32_t layer = micro_batch.layer;
    const uint32_t first = micro_batch.num_attended;
    const uint32_t count =
        micro_batch.rows_within(first, settings_.micro_batch_size, tile_positions_);
    const model::Residual residual = micro_batch.residual().slice(first, count);
    parts_.attention->attention(
        layer,
        micro_batch.attention_batch(first, count, parts_.cache->is_windowed(layer)),
        *parts_.cache,
        residual,
        workspace_,
        *parts_.parallel);
    parts_.attention->pre_ffn(layer,
                              residual,
                              micro_batch.ffn_input(first, count),
                              workspace_,
                              *parts_.parallel,
                              router_use(micro_batch));
    probe_.attended(micro_batch, start_ns, count);
    micro_batch.num_attended += count;
    AFD_CRASH_POINT("attend.tile_done");
    if (micro_batch.num_attended < micro_batch.num_rows()) return;
    micro_batch.num_attended = 0;
    for (const BatchPiece& piece : micro_batch.pieces()) {
        piece.sequence->layer_positions[layer] = piece.first_position + piece.num_rows;
    }
    if (parts_.attention->is_routed(layer, router_use(micro_batch))) {
        end_poisoned(micro_batch, micro_batch.topk_weights());
    }
    micro_batch.stage = MicroBatch::Stage::kDispatch;
}

void AttentionLoop::dispatch(MicroBatch& micro_batch) {
    end_wait(micro_batch);
    const uint64_t start_ns = schedule::steady_now_ns();
    const uint32_t layer = micro_batch.layer;
    const bool is_routed = parts_.attention->is_routed(layer, router_use(micro_batch));
    const auto started = micro_batch.lane().start(
        micro_batch.moe_input(parts_.attention->num_shared(layer), is_routed),
        micro_batch.moe_out());
    if (!started.ok()) {
        fail(micro_batch, started.error().code, started.error().message.c_str());
        return;
    }
    micro_batch.stage = MicroBatch::Stage::kExperts;
    probe_.dispatched(micro_batch, start_ns, micro_batches_);
    if (parts_.attention->config().is_moe_layer(layer) && is_routed) {
        parts_.metrics.add(Counter::kExperts, micro_batch.count_experts());
    }
}

void AttentionLoop::combine(MicroBatch& micro_batch) {
    end_wait(micro_batch);
    const uint64_t start_ns = schedule::steady_now_ns();
    AFD_CRASH_POINT("combine.results_seen");
    const auto finished = micro_batch.lane().finish();
    AFD_CRASH_POINT("combine.summed");
    if (!finished.ok()) {
        if (send_again(micro_batch, finished.error())) return;
        // A refusal of that lane, for want of memory or by R11, says nothing about the windows; and
        // rows that were corrupted are here, unharmed.
        if (finished.error().code == Code::kDataLoss) warn(data_losses_, finished.error().message);
        if (micro_batch.lane().traits().rows == LaneRows::kLongPrompts) {
            give_back(micro_batch);
        } else {
            fail(micro_batch, finished.error().code, finished.error().message.c_str());
        }
        return;
    }
    if (micro_batch.lane().traits().rows == LaneRows::kAny) {
        parts_.words.set_micro_batch_id(micro_batch.index());
    }
    if (const float* topk_weights = micro_batch.lane().topk_weights()) {
        end_poisoned(micro_batch, topk_weights);
    }
    model::add_residual(micro_batch.residual(), micro_batch.moe_out(), *parts_.parallel);
    probe_.combined(micro_batch, start_ns);
    ++micro_batch.layer;
    micro_batch.num_resent = 0;
    micro_batch.has_lost_rank = false;
    micro_batch.stage = micro_batch.layer == parts_.attention->config().num_layers
                            ? MicroBatch::Stage::kHead
                            : MicroBatch::Stage::kAttention;
}

// A row that was corrupted on its way is here, unharmed: once more from the dispatch on. What
// happens to the same rows again and again is no accident, and ends their requests.
bool AttentionLoop::send_again(MicroBatch& micro_batch, const Error& error) {
    constexpr uint32_t kResentMax = 3;
    if (!settings_.row_checksums || error.code != Code::kDataLoss ||
        micro_batch.lane().traits().rows == LaneRows::kLongPrompts ||
        micro_batch.num_resent == kResentMax) {
        return false;
    }
    ++micro_batch.num_resent;
    warn(corruptions_,
         fmt::format("{}; it is sent again, {} of at most {} times",
                     error.message,
                     micro_batch.num_resent,
                     kResentMax));
    probe_.left();
    micro_batch.stage = MicroBatch::Stage::kDispatch;
    return true;
}

// Whoever stores into a window can spoil every row.
void AttentionLoop::warn(LogLimit& limit, const std::string& text) const {
    const auto num_unsaid = limit.take(parts_.now_us() / 1000);
    if (num_unsaid) log::warn("{}{}", text, LogLimit::more(*num_unsaid));
}

void AttentionLoop::end_poisoned(const MicroBatch& micro_batch, const float* topk_weights) {
    micro_batch.for_each_poisoned(topk_weights, [](const BatchPiece& piece) {
        mark_ending(
            *piece.sequence,
            Code::kInternal,
            "the router's scores are not finite: the checkpoint's weights are bad, or a row "
            "was corrupted on its way between the workers, which row_checksums = true tells");
    });
}

// A tile of the rows that somebody wants logits of: with prompt_logprobs a long prompt has hundreds
// of them, seconds of work, in which the other rows go on, and commands are taken.
void AttentionLoop::run_head(MicroBatch& micro_batch) {
    parts_.heartbeat.set_computing();
    const uint64_t start_ns = schedule::steady_now_ns();
    const uint32_t first = micro_batch.num_emitted;
    AFD_CRASH_POINT("emit.step_through");
    emitter_.emit(micro_batch);
    AFD_CRASH_POINT("emit.sampled");
    probe_.emitted(micro_batch, start_ns, micro_batch.num_emitted - first);
    if (micro_batch.num_emitted == micro_batch.num_rows()) finish_step(micro_batch);
}

// Its rows are in no micro-batch any more.
void AttentionLoop::release(const BatchPiece& piece) {
    events_reserved_ -= piece.events_reserved;
    --piece.sequence->num_in_flight;
}

void AttentionLoop::finish_step(MicroBatch& micro_batch) {
    const bool is_long = micro_batch.lane().traits().rows == LaneRows::kLongPrompts;
    for (const BatchPiece& piece : micro_batch.pieces()) {
        release(piece);
        piece.sequence->layer_positions[micro_batch.layer] = piece.first_position + piece.num_rows;
        if (is_long) piece.sequence->is_in_long_lane = false;
        sequences_.offer_computed(*piece.sequence);
        sequences_.move_on(*piece.sequence);
    }
    probe_.finished_step(micro_batch);
    micro_batch.clear();
}

void AttentionLoop::fail(MicroBatch& micro_batch, Code code, const char* text) {
    for (const BatchPiece& piece : micro_batch.pieces()) {
        release(piece);
        mark_ending(*piece.sequence, code, text);
    }
    // The sequences go on to their end; the lane does not: what was published stays and blocks it
    // until it is acknowledged (R4, R7).
    micro_batch.lane().cancel();
    if (micro_batch.stage == MicroBatch::Stage::kExperts) probe_.left();
    end_wait_unless_blocked(micro_batch);
    micro_batch.clear();
}

// The lane of long prompts could not carry the rows: they go through the others instead, from the
// first layer on. No other lane has rows of these sequences behind them, and what the cache holds
// of them is overwritten with the same bits.
void AttentionLoop::give_back(MicroBatch& micro_batch) {
    for (const BatchPiece& piece : micro_batch.pieces()) {
        Sequence& sequence = *piece.sequence;
        release(piece);
        sequence.num_scheduled = piece.first_position;
        for (uint32_t& position : sequence.layer_positions) {
            position = std::min(position, piece.first_position);
        }
        sequence.is_in_long_lane = false;
        sequence.avoids_long_lane = true;
    }
    if (micro_batch.stage == MicroBatch::Stage::kExperts) probe_.left();
    micro_batch.clear();
}

// Whether any has ended: others may have waited for its blocks.
bool AttentionLoop::end_finished_sequences() {
    const size_t num_before = sequences_.active().size();
    // Backwards: releasing one closes the gap behind it.
    for (size_t i = sequences_.active().size(); i-- > 0;) {
        Sequence& sequence = *sequences_.active()[i];
        if (sequence.is_ending && sequence.num_in_flight == 0) end_sequence(sequence);
    }
    parts_.metrics.set(Counter::kSequences, sequences_.active().size());
    parts_.metrics.set(Counter::kKvTokens,
                       uint64_t{sequences_.num_kv_blocks_used()} * model::kKvBlockTokens);
    parts_.metrics.set(Counter::kKvWindowedTokens,
                       uint64_t{sequences_.num_windowed_blocks_reserved()} * model::kKvBlockTokens);
    return sequences_.active().size() < num_before;
}

void AttentionLoop::end_sequence(Sequence& sequence) {
    WorkerEvent event{.kind = WorkerEvent::Kind::kEnd,
                      .sequence_id = sequence.request->sequence_id,
                      .code = sequence.end_code,
                      .gave_way = sequence.gives_way};
    event.set_text("%s", sequence.end_text);
    event.sequence = sequences_.release(sequence);
    AFD_ASSERT(parts_.port->push(std::move(event)), "the event ring holds one end per sequence");
    AFD_CRASH_POINT("emit.end_pushed");
}

}  // namespace afd::daemon
