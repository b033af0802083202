// SPDX-License-Identifier: Apache-2.0
#pragma once

// Capability records: what each part of the fused-MoE framework can do, as data.
//
// check(record, config) answers whether a part serves a configuration, or the first reason why not;
// check_pair whether two parts fit; check_composition asks all in this order. FusedMoe::compose,
// the registry, the feature matrix (afd-op moe-matrix) and the tests' matrix all ask here, so an
// illegal combination is refused before any token, with its reason.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ops/format/expert_activation.h"
#include "ops/fused_moe/activations.h"
#include "proto/status.h"
#include "schedule/layout/row_dtype.h"

namespace afd::ops {

enum class ExpertQuantisation : uint8_t { kNone = 0, kInt8 = 1, kInt4 = 2, kFp8 = 3 };
inline constexpr std::array kExpertQuantisations = {ExpertQuantisation::kNone,
                                                    ExpertQuantisation::kInt8,
                                                    ExpertQuantisation::kInt4,
                                                    ExpertQuantisation::kFp8};
// Added to the sums of gate, up and down.
enum class ExpertBias : uint8_t { kAbsent = 0, kPresent = 1 };
enum class IdDtype : uint8_t { kInt32 = 0, kInt64 = 1 };

// What happens to a call whose rows do not fit in what row_fraction reserves. No row is ever
// dropped.
enum class RowOverflow : uint8_t {
    kError,         // It is refused; the message names the expert or the tokens.
    kBackpressure,  // Whole calls fit, but fewer are in flight: start() is refused until one ends.
    kChunk,         // It goes through in several parts, one after the other. The same bits.
};

// How rows travel from prepare to the experts. int8 rows are what experts with int8 weights make of
// bf16 ones anyway, so these have the same bits; fp8 rows are expanded to bf16 where they arrive,
// and are a numeric class of their own (ops/linear/quantise.h, ops/linear/fp8_rows.h).
using schedule::RowDtype;

// Who applies the routing weights and sums over the slots; executed exactly once.
enum class WeightAndReduceKind : uint8_t {
    kNoOp,          // The experts did it already.
    kContiguous,    // finalize does it over Standard rows.
    kNaiveBatched,  // finalize does it over rows found by an index.
    kDelegate,      // The PrepareFinalize chooses; its record says what.
};

std::string_view name_of(ActivationFormat format);
std::string_view name_of(ExpertQuantisation quantisation);
std::string_view name_of(ExpertBias bias);
std::string_view name_of(WeightAndReduceKind kind);
std::string_view name_of(RowOverflow overflow);
std::string_view name_of(IdDtype dtype);

template <typename Enum>
constexpr uint32_t bit(Enum value) {
    return 1u << static_cast<uint32_t>(value);
}

// Bytes of one kind of rows: what a process could address at most, with room for sums of several
// such figures.
inline constexpr uint64_t kRowBytesMax = uint64_t{1} << 46;

inline constexpr uint32_t kAllActivations = (1u << kNumExpertActivations) - 1;
inline constexpr uint32_t kWithOrWithoutBias = bit(ExpertBias::kAbsent) | bit(ExpertBias::kPresent);

// What one model layer family and one deployment ask of the parts.
struct FusedMoeConfig {
    size_t hidden = 0;
    size_t num_experts = 0;  // Routed, logical.
    size_t top_k = 0;
    size_t num_shared = 0;          // Shared slots; 0 ... 4.
    size_t max_num_tokens = 0;      // Tokens of one micro-batch, at most.
    size_t num_micro_batches = 1;   // Tickets in flight, at most.
    size_t max_chunk_tokens = 0;    // Local experts take at most so many tokens at once; 0: all.
    bool has_shared_stage = false;  // Shared experts run on this side, not as dispatched slots.
    size_t max_shared_tokens = 0;   // The stage takes at most so many in one advance(); 0: all.
    uint64_t wait_timeout_us = 10'000'000;  // Of FusedMoe::apply, for other processes.
    ExpertActivation activation = ExpertActivation::kSilu;
    ExpertBias bias = ExpertBias::kAbsent;
    ExpertQuantisation quantisation = ExpertQuantisation::kNone;  // Of the experts' weights.
    RowDtype dispatch_dtype = RowDtype::kBf16;
    IdDtype topk_indices_dtype = IdDtype::kInt32;  // Of the ids that calls bring.
    bool needs_routing = false;  // Inputs may come without topk_ids: dispatch has them routed.
    // The routing weight multiplies the experts' input instead of their output
    // (ops/fused_moe/weighted_rows.h). Only with top_k 1.
    bool apply_router_weight_on_input = false;
    size_t num_ranks = 2;         // Of two_phase: over which the experts lie.
    size_t num_kept_layouts = 0;  // Layouts that are held beside those of the tickets, at most.
    // Memory for rows is reserved for this part of the worst case, in (0, 1].
    double row_fraction = 1.0;
    RowOverflow overflow = RowOverflow::kError;  // What a call meets that needs more.
};

struct PrepareFinalizeCapability {
    std::string_view name;
    ActivationFormat activation_format = ActivationFormat::kStandard;  // What the experts get.
    bool is_remote = false;        // The experts run in other processes.
    bool is_asynchronous = false;  // prepare_async returns before the rows arrived.
    uint32_t dispatch_dtypes = bit(RowDtype::kBf16);  // Set of bit(RowDtype).
    bool adds_shared_rows = false;                    // finalize adds the rows of a shared stage.
    bool routes = false;         // Takes inputs without topk_ids: who gets the rows routes.
    bool knows_weights = false;  // Has the weights before the rows leave: may apply them first.
    // Of the ids that prepare_async gets; the driver makes them of those that calls bring.
    IdDtype topk_indices_dtype = IdDtype::kInt32;
    uint32_t reduces = bit(WeightAndReduceKind::kContiguous);  // Set of bit(WeightAndReduceKind).
    // What finalize executes for experts that delegate; kDelegate: a combine of its own.
    WeightAndReduceKind delegate = WeightAndReduceKind::kContiguous;
    size_t max_in_flight = 0;         // Tickets; 0: no limit of its own.
    size_t max_num_ranks = 0;         // Of the configuration; 0: likewise.
    size_t max_experts_per_rank = 0;  // Shared ones among them; 0: likewise.
    bool shares_layouts = false;      // Later calls with the same routing may reuse a layout.
    bool defers_finalize = false;     // Can hand out the rows before they are weighted and summed.
    bool bounds_rows = false;         // Can reserve for a part of the worst case.
    // Batched: max_num_tokens = max_num_tokens_per_rank.of(num_dispatchers); others: no limit.
    size_t num_dispatchers = 1;
    RankCapacity max_num_tokens_per_rank = {};
};

// The record of a part says what it can do, that of an instance what its experts are.
struct ExpertsCapability {
    std::string_view name;
    uint32_t activation_formats = bit(ActivationFormat::kStandard);  // Set of bit(Format).
    bool is_remote = false;  // Stands for parts of other processes (RemoteExperts).
    uint32_t activations = bit(ExpertActivation::kSilu);      // Set of bit(ExpertActivation).
    uint32_t biases = bit(ExpertBias::kAbsent);               // Set of bit(ExpertBias).
    uint32_t quantisations = bit(ExpertQuantisation::kNone);  // Set of bit(ExpertQuantisation).
    WeightAndReduceKind weight_and_reduce = WeightAndReduceKind::kDelegate;
    bool takes_int8_rows = false;  // Rows that were dispatched as int8.
    // Of an instance: an expert of it has smooth scales (ops/experts/expert_table.h), which only
    // parts between processes put into int8 rows.
    bool has_smooth_scales = false;
    bool supports_chunking = false;
};

// Errors: kInvalidArgument (a size of the configuration itself), kFailedPrecondition (a part that
// does not serve it); the message names the part, the field, the value and what is allowed.
Result<> check(const FusedMoeConfig& config);
Result<> check(const PrepareFinalizeCapability& capability, const FusedMoeConfig& config);
Result<> check(const ExpertsCapability& capability, const FusedMoeConfig& config);
Result<> check_pair(const PrepareFinalizeCapability& prepare_finalize,
                    const ExpertsCapability& experts);
Result<> check_composition(const PrepareFinalizeCapability& prepare_finalize,
                           const ExpertsCapability& experts,
                           const FusedMoeConfig& config);

// What finalize has to execute. REQUIRES: check_pair(prepare_finalize, experts).
constexpr WeightAndReduceKind weight_and_reduce_of(
    const PrepareFinalizeCapability& prepare_finalize, const ExpertsCapability& experts) {
    return experts.weight_and_reduce == WeightAndReduceKind::kDelegate ? prepare_finalize.delegate
                                                                       : experts.weight_and_reduce;
}

// The record of an instance whose experts are these.
constexpr ExpertsCapability narrowed(ExpertsCapability record,
                                     ExpertActivation activation,
                                     bool has_bias) {
    record.activations &= bit(activation);
    record.biases &= bit(has_bias ? ExpertBias::kPresent : ExpertBias::kAbsent);
    return record;
}

// Whether check_pair finds nothing: a static_assert where both parts are known at compile time.
constexpr bool fits(const PrepareFinalizeCapability& prepare_finalize,
                    const ExpertsCapability& experts) {
    return prepare_finalize.is_remote == experts.is_remote &&
           (experts.activation_formats & bit(prepare_finalize.activation_format)) != 0 &&
           (experts.weight_and_reduce == WeightAndReduceKind::kDelegate ||
            (prepare_finalize.reduces & bit(experts.weight_and_reduce)) != 0);
}

}  // namespace afd::ops
