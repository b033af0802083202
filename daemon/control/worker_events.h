// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a worker's data thread and its control thread say to each other: fixed-size records that
// travel through two rings (worker_port.h). Not a wire format: control_channel.h carries the
// same facts to afdd as protobuf.
//
// Ownership: kAdmit hands a SequenceRequest to the data thread, kEnd of that sequence hands it
// back to the control thread, which frees it. So the data thread neither allocates nor frees: it
// moves the request through, and what a ring still holds at the end goes with the ring. The one
// exception is a constraint, which grows when its text comes to where none of it has been.
//
// Order: the events of one sequence are kStarted, kPromptLogprob... (positions ascending),
// kToken..., kEnd. After kEnd nothing of that sequence follows. Every admitted sequence gets
// exactly one kEnd, also when it is cancelled; a kCancel of an unknown sequence is ignored.
// An FFN worker asks with kSegmentRequest and hears kSegment, and so does the session of the round;
// kSegmentRelease has no answer. An attention worker asks with kVoidRequest and hears kVoidAnswer.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/grammar/token_constraint.h"
#include "model/sampling/sampler.h"
#include "proto/status.h"
#include "schedule/shared_memory/two_phase_memory.h"

namespace afd::daemon {

// One sequence to run, validated by afdd (ids below the vocabulary, sizes within the context).
struct SequenceRequest {
    uint64_t sequence_id = 0;
    // The prompt, then what a replay had already sent. Its capacity is max_total_tokens, so the
    // data thread may append the tokens it samples without an allocation.
    std::vector<uint32_t> tokens;
    uint32_t num_prompt_tokens = 0;  // tokens[num_prompt_tokens...] were sampled before a replay.
    uint32_t max_total_tokens = 0;   // Prompt and output; ends with kOk when it is reached.
    uint32_t reserved_tokens = 0;    // Positions with room from its admission on; 0: all.
    model::SamplingParams sampling;
    // Of a response_format: it stands behind `tokens`, as far as they are output. Or null.
    std::unique_ptr<model::TokenConstraint> constraint = nullptr;
    bool prompt_logprobs = false;    // Report the logprob of prompt tokens 1, 2, ...
    std::vector<uint32_t> stop_ids;  // A sampled one is reported, then ends the sequence.
    uint32_t min_tokens = 0;         // No stop_id is sampled before this many output tokens.
    uint32_t num_top_logprobs = 0;   // Reported with each of these; at most model::kTopLogprobsMax.
};

struct WorkerCommand {
    enum class Kind : uint32_t {
        kAdmit,       // Run `sequence`.
        kCancel,      // End `sequence_id` with kCancelled (R7: never cuts R4 or R10 short).
        kShutdown,    // Leave the loop at the next step; nothing follows.
        kSegment,     // The memory of `round` of `session` with `rank`: `code`, `segments`.
        kRankState,   // Attention: FFN worker `rank` is lost, or back: `is_lost` (R12).
        kVoidAnswer,  // Attention: `round` of `micro_batch` at `rank` is voided: `is_granted`.
    };
    Kind kind = Kind::kShutdown;
    uint32_t session = 0;
    int32_t round = 0;
    Code code = Code::kOk;
    uint32_t rank = 0;
    uint32_t micro_batch = 0;
    bool is_lost = false;
    bool is_granted = false;
    uint64_t sequence_id = 0;
    std::unique_ptr<SequenceRequest> sequence = nullptr;                  // kAdmit.
    std::unique_ptr<schedule::TwoPhaseRoundSegments> segments = nullptr;  // kSegment with kOk.
};

// The memory of a two-phase round, as an FFN worker asks for it.
struct SegmentRound {
    uint32_t session = 0;
    int32_t round = 0;
    uint64_t receive_bytes = 0;
    uint64_t return_bytes = 0;
};

// A round of a micro-batch at a rank that is lost (R12).
struct VoidableRound {
    uint32_t rank = 0;
    uint32_t micro_batch = 0;
    int32_t round = 0;
};

// With a zero byte: a report of a wait (R7) and "no slot: " in front of it, with the largest
// numbers.
inline constexpr size_t kEventTextBytes = 288;

struct WorkerEvent {
    enum class Kind : uint32_t {
        kStarted,         // The first chunk of the sequence is scheduled; `token` tokens before it
                          // came from the prefix cache.
        kPromptLogprob,   // `logprob` of the prompt token at position `token`, given those before.
        kToken,           // `token` was sampled with `logprob`.
        kEnd,             // The sequence is over: `code`, `text`; `sequence` goes back.
        kWait,            // R7: see set_wait(); without a text: that wait is over.
        kSegmentRequest,  // FFN: wants the segments of `segment`.
        kSegmentRelease,  // FFN: needs those of its session and round no more.
        kVoidRequest,     // Attention: can do without `voidable`.
    };
    Kind kind = Kind::kWait;
    uint32_t token = 0;
    uint64_t sequence_id = 0;
    float logprob = 0.0F;
    Code code = Code::kOk;  // kEnd: kOk: stop token or length; kCancelled; an error.
    uint8_t num_top = 0;    // kToken, kPromptLogprob: see top().
    uint16_t peer_at = 0;   // kWait: see set_wait().
    bool gave_way = false;  // kEnd with kCancelled: for want of room beside others.
    std::unique_ptr<SequenceRequest> sequence = nullptr;  // kEnd: back to the control thread.
    SegmentRound segment = {};                            // kSegmentRequest, kSegmentRelease.
    VoidableRound voidable = {};                          // kVoidRequest.
    // kEnd with an error, kWait: one line, zero-terminated. Others: see set_top().
    char text[kEventTextBytes] = {};

    // Formats `text`; cuts what does not fit.
    template <typename... Args>
    void set_text(const char* format, Args... args) {
        std::snprintf(text, sizeof(text), format, args...);
    }

    // kWait: who waits for whom, for which FFN rank, and what that was last seen to do, which
    // begins at `peer_at` of the text; 0: nowhere, for want of room.
    void set_wait(const std::string& wait, uint32_t rank, const std::string& peer) {
        token = rank;
        const std::string start = wait + "; ";
        const bool has_room = start.size() + peer.size() < sizeof(text);
        set_text("%s", (has_room ? start + peer : wait).c_str());
        peer_at = has_room ? static_cast<uint16_t>(start.size()) : uint16_t{0};
    }

    // kToken, kPromptLogprob: the most likely tokens in its place. They lie where other events have
    // a text, so that the ring does not grow for them.
    void set_top(std::span<const model::TokenLogprob> tokens) {
        static_assert(model::kTopLogprobsMax * sizeof(model::TokenLogprob) <= sizeof(text));
        num_top = static_cast<uint8_t>(tokens.size());
        std::memcpy(text, tokens.data(), tokens.size_bytes());
    }
    // REQUIRES: index < num_top.
    model::TokenLogprob top(size_t index) const {
        model::TokenLogprob entry;
        std::memcpy(&entry, text + index * sizeof(entry), sizeof(entry));
        return entry;
    }
};

static_assert(sizeof(WorkerEvent) == 368, "a ring of 16,384 is 5.8 MiB");

}  // namespace afd::daemon
