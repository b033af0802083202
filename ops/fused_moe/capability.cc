// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/capability.h"

#include <algorithm>
#include <span>
#include <string>

#include "ops/format/expert_slots.h"
#include "proto/failure.h"

namespace afd::ops {
namespace {

Result<> check_range(const char* field, size_t value, size_t least, size_t most) {
    if (value >= least && value <= most) return {};
    return invalid_argument("{} is {}; allowed are {} ... {}", with(field, value, least, most));
}

template <typename... Values>
Error refuse(std::string_view part, Text<Values...> reason, const With<Values...>& values = {}) {
    return failed_precondition("{} {}", with(part, fmt::vformat(reason, values)));
}

template <typename Enum>
std::string names_in(uint32_t set, std::span<const Enum> all) {
    std::string names;
    for (const Enum value : all) {
        if ((set & bit(value)) == 0) continue;
        names += (names.empty() ? "" : ", ") + std::string(name_of(value));
    }
    return names;
}

template <typename Enum>
Result<> check_served(std::string_view part,
                      const char* field,
                      uint32_t set,
                      Enum wanted,
                      std::span<const Enum> all) {
    if ((set & bit(wanted)) != 0) return {};
    return refuse(part,
                  "does not serve {} {}; it serves {}",
                  with(field, name_of(wanted), names_in(set, all)));
}

// The places of a batched part, and their rows. Counted in Capacity, which saturates instead of
// wrapping: the factors are a user's.
Result<> check_places(const PrepareFinalizeCapability& capability, const FusedMoeConfig& config) {
    const Capacity places = capability.max_num_tokens_per_rank.of(capability.num_dispatchers) *
                            (uint64_t{config.num_experts} + config.num_shared);
    if (places > Capacity(INT32_MAX)) {
        return refuse(capability.name,
                      "numbers its places with 31 bits, at most {}; num_dispatchers · "
                      "max_num_tokens_per_rank · experts is {}",
                      with(INT32_MAX, places.text()));
    }
    const Capacity bytes = places * config.hidden * sizeof(Bf16) * config.num_micro_batches;
    if (bytes > Capacity(kRowBytesMax)) {
        return refuse(
            capability.name,
            "holds rows for {} places of each micro-batch, which take {} bytes; allowed are {}",
            with(places.text(), bytes.text(), kRowBytesMax));
    }
    return {};
}

// The ranks, and the experts of the fullest of them.
Result<> check_ranks(const PrepareFinalizeCapability& capability, const FusedMoeConfig& config) {
    if (capability.max_num_ranks != 0 && config.num_ranks > capability.max_num_ranks) {
        return refuse(capability.name,
                      "spreads experts over {} ranks at most; num_ranks is {}",
                      with(capability.max_num_ranks, config.num_ranks));
    }
    const size_t num_experts = config.num_experts + config.num_shared;
    const size_t num_ranks = std::max<size_t>(1, config.num_ranks);
    const size_t of_rank = num_experts / num_ranks + (num_experts % num_ranks == 0 ? 0 : 1);
    if (capability.max_experts_per_rank != 0 && of_rank > capability.max_experts_per_rank) {
        return refuse(capability.name,
                      "takes {} experts of a rank at most; num_experts {} and num_shared {} over "
                      "num_ranks {} are {}",
                      with(capability.max_experts_per_rank,
                           config.num_experts,
                           config.num_shared,
                           config.num_ranks,
                           of_rank));
    }
    return {};
}

constexpr ExpertBias kBiases[] = {ExpertBias::kAbsent, ExpertBias::kPresent};
constexpr ActivationFormat kFormats[] = {
    ActivationFormat::kStandard, ActivationFormat::kBatched, ActivationFormat::kGrouped};
constexpr RowDtype kRowDtypes[] = {RowDtype::kBf16, RowDtype::kInt8, RowDtype::kFp8};
constexpr WeightAndReduceKind kReductions[] = {WeightAndReduceKind::kNoOp,
                                               WeightAndReduceKind::kContiguous,
                                               WeightAndReduceKind::kNaiveBatched};

// A weight on the input: one weight for each row, known before the row leaves, and no row without.
Result<> check_weight_on_input(const FusedMoeConfig& config) {
    if (!config.apply_router_weight_on_input) return {};
    if (config.top_k != 1) {
        return invalid_argument(
            "apply_router_weight_on_input is true; only with top_k 1 has a row one weight, and "
            "top_k is {}",
            with(config.top_k));
    }
    if (config.needs_routing) {
        return invalid_argument(
            "apply_router_weight_on_input is true; the weights must be there before the rows "
            "leave, so needs_routing must be false");
    }
    if (config.num_shared > 0 && !config.has_shared_stage) {
        return invalid_argument(
            "apply_router_weight_on_input is true; shared experts take the row without a weight, "
            "but num_shared is {} and their slots get the rows of the others; has_shared_stage "
            "must be true, or num_shared 0",
            with(config.num_shared));
    }
    return {};
}

}  // namespace

std::string_view name_of(ActivationFormat format) {
    switch (format) {
        case ActivationFormat::kStandard:
            return "standard";
        case ActivationFormat::kBatched:
            return "batched";
        case ActivationFormat::kGrouped:
            return "grouped";
    }
    return "unknown";
}

std::string_view name_of(ExpertQuantisation quantisation) {
    switch (quantisation) {
        case ExpertQuantisation::kNone:
            return "none";
        case ExpertQuantisation::kInt8:
            return "int8";
        case ExpertQuantisation::kInt4:
            return "int4";
        case ExpertQuantisation::kFp8:
            return "fp8";
    }
    return "unknown";
}

std::string_view name_of(ExpertBias bias) {
    return bias == ExpertBias::kPresent ? "present" : "absent";
}

std::string_view name_of(WeightAndReduceKind kind) {
    switch (kind) {
        case WeightAndReduceKind::kNoOp:
            return "no_op";
        case WeightAndReduceKind::kContiguous:
            return "contiguous";
        case WeightAndReduceKind::kNaiveBatched:
            return "naive_batched";
        case WeightAndReduceKind::kDelegate:
            return "delegate";
    }
    return "unknown";
}

std::string_view name_of(RowOverflow overflow) {
    switch (overflow) {
        case RowOverflow::kError:
            return "error";
        case RowOverflow::kBackpressure:
            return "backpressure";
        case RowOverflow::kChunk:
            return "chunk";
    }
    return "unknown";
}

std::string_view name_of(IdDtype dtype) {
    return dtype == IdDtype::kInt64 ? "int64" : "int32";
}

Result<> check(const FusedMoeConfig& config) {
    AFD_TRY(check_range("hidden", config.hidden, 1, INT32_MAX));
    AFD_TRY(check_range("num_experts", config.num_experts, 1, INT32_MAX));
    AFD_TRY(check_range("top_k", config.top_k, 1, kTopKMax));
    AFD_TRY(check_range("num_shared", config.num_shared, 0, kSharedExpertsMax));
    // So that every slot of a call, token · (top_k + num_shared), has an int32 number.
    const size_t tokens_max = INT32_MAX / kExpertSlotsMax;
    AFD_TRY(check_range("max_num_tokens", config.max_num_tokens, 1, tokens_max));
    AFD_TRY(check_range("num_micro_batches", config.num_micro_batches, 1, 64));
    AFD_TRY(check_range("num_ranks", config.num_ranks, 1, 4096));
    AFD_TRY(check_range("num_kept_layouts", config.num_kept_layouts, 0, 64));
    if (!(config.row_fraction > 0.0 && config.row_fraction <= 1.0)) {
        return invalid_argument("row_fraction is {:f}; allowed are numbers above 0 up to 1",
                                with(config.row_fraction));
    }
    const Capacity rows = Capacity(config.max_num_tokens) * (config.top_k + config.num_shared);
    const Capacity bytes = rows * config.hidden * (sizeof(Bf16) * config.num_micro_batches);
    if (bytes > Capacity(kRowBytesMax)) {
        return invalid_argument(
            "the rows of max_num_tokens {}, hidden {} and {} slots take {} bytes; allowed are {}",
            with(config.max_num_tokens,
                 config.hidden,
                 config.top_k + config.num_shared,
                 bytes.text(),
                 kRowBytesMax));
    }
    // fp8 rows are expanded to bf16 where they arrive; int8 rows are multiplied as they are.
    if (config.dispatch_dtype == RowDtype::kInt8 &&
        config.quantisation != ExpertQuantisation::kInt8) {
        return invalid_argument(
            "dispatch_dtype is int8; only experts with int8 weights take such rows, and "
            "quantisation is {}",
            with(name_of(config.quantisation)));
    }
    return check_weight_on_input(config);
}

Result<> check(const PrepareFinalizeCapability& capability, const FusedMoeConfig& config) {
    if (capability.max_in_flight != 0 && config.num_micro_batches > capability.max_in_flight) {
        return refuse(capability.name,
                      "holds {} tickets in flight; num_micro_batches is {}",
                      with(capability.max_in_flight, config.num_micro_batches));
    }
    if (config.needs_routing && !capability.routes) {
        return refuse(capability.name,
                      "takes rows that are routed already; needs_routing must be false");
    }
    if (config.apply_router_weight_on_input && !capability.knows_weights) {
        return refuse(capability.name,
                      "sends rows before their weights are chosen; apply_router_weight_on_input "
                      "must be false");
    }
    const bool is_batched = capability.activation_format == ActivationFormat::kBatched;
    const RankCapacity of_rank = capability.max_num_tokens_per_rank;
    if (is_batched && (!of_rank.is_limited() || capability.num_dispatchers == 0)) {
        return refuse(capability.name,
                      "is batched, so num_dispatchers and max_num_tokens_per_rank must be set; "
                      "they are {} and {}",
                      with(capability.num_dispatchers, of_rank.num_tokens()));
    }
    if (of_rank.is_limited() && config.max_num_tokens > of_rank.num_tokens()) {
        return refuse(capability.name,
                      "takes {} tokens of a rank; max_num_tokens is {}",
                      with(of_rank.num_tokens(), config.max_num_tokens));
    }
    // Only batched parts reserve for every place that could be filled.
    if (is_batched) AFD_TRY(check_places(capability, config));
    AFD_TRY(check_ranks(capability, config));
    if (config.row_fraction < 1.0 && !capability.bounds_rows) {
        return refuse(capability.name, "reserves for whole micro-batches; row_fraction must be 1");
    }
    if (config.num_kept_layouts != 0 && !capability.shares_layouts) {
        return refuse(capability.name,
                      "does not share layouts; num_kept_layouts is {} and must be 0",
                      with(config.num_kept_layouts));
    }
    if (config.max_chunk_tokens != 0 && capability.is_remote) {
        return refuse(
            capability.name,
            "sends whole micro-batches to other processes; max_chunk_tokens is {} and must be 0",
            with(config.max_chunk_tokens));
    }
    if (config.max_chunk_tokens != 0 && is_batched) {
        return refuse(capability.name,
                      "gives batched activations, whose capacity bounds a call already; "
                      "max_chunk_tokens is {} and must be 0",
                      with(config.max_chunk_tokens));
    }
    if ((capability.dispatch_dtypes & bit(config.dispatch_dtype)) == 0) {
        return refuse(capability.name,
                      "sends rows as {} only; dispatch_dtype is {}",
                      with(names_in<RowDtype>(capability.dispatch_dtypes, kRowDtypes),
                           name_of(config.dispatch_dtype)));
    }
    if (config.has_shared_stage && !capability.adds_shared_rows) {
        return refuse(capability.name,
                      "dispatches the rows of shared experts with the others; has_shared_stage "
                      "must be false");
    }
    return {};
}

Result<> check(const ExpertsCapability& capability, const FusedMoeConfig& config) {
    const std::string_view name = capability.name;
    AFD_TRY(check_served<ExpertActivation>(
        name, "activation", capability.activations, config.activation, kExpertActivations));
    AFD_TRY(check_served<ExpertBias>(name, "bias", capability.biases, config.bias, kBiases));
    AFD_TRY(check_served<ExpertQuantisation>(
        name, "quantisation", capability.quantisations, config.quantisation, kExpertQuantisations));
    if (config.dispatch_dtype == RowDtype::kInt8 && !capability.takes_int8_rows) {
        return refuse(capability.name, "takes bf16 rows only; dispatch_dtype is int8");
    }
    if (config.max_chunk_tokens != 0 && !capability.supports_chunking) {
        return refuse(capability.name,
                      "does not take chunks of a micro-batch; max_chunk_tokens is {} and must be 0",
                      with(config.max_chunk_tokens));
    }
    return {};
}

Result<> check_pair(const PrepareFinalizeCapability& prepare_finalize,
                    const ExpertsCapability& experts) {
    if (prepare_finalize.is_remote && !experts.is_remote) {
        return refuse(prepare_finalize.name,
                      "sends the rows to other processes, but {} runs in this one; compose it with "
                      "RemoteExperts",
                      with(experts.name));
    }
    if (!prepare_finalize.is_remote && experts.is_remote) {
        return refuse(prepare_finalize.name,
                      "keeps the rows in this process, but {} runs in others",
                      with(experts.name));
    }
    if ((experts.activation_formats & bit(prepare_finalize.activation_format)) == 0) {
        return refuse(prepare_finalize.name,
                      "gives activations in format {}, but {} takes {}",
                      with(name_of(prepare_finalize.activation_format),
                           experts.name,
                           names_in<ActivationFormat>(experts.activation_formats, kFormats)));
    }
    // Experts that delegate take whatever the other part executes.
    if (experts.weight_and_reduce != WeightAndReduceKind::kDelegate &&
        (prepare_finalize.reduces & bit(experts.weight_and_reduce)) == 0) {
        const std::string executes =
            names_in<WeightAndReduceKind>(prepare_finalize.reduces, kReductions);
        return refuse(
            prepare_finalize.name,
            "cannot execute the weight-and-reduce {} that {} leaves to it; it executes {}",
            with(name_of(experts.weight_and_reduce),
                 experts.name,
                 executes.empty() ? "only its own" : executes));
    }
    return {};
}

Result<> check_composition(const PrepareFinalizeCapability& prepare_finalize,
                           const ExpertsCapability& experts,
                           const FusedMoeConfig& config) {
    // From the general to the particular: a configuration that nobody serves is refused as such,
    // before a part is blamed for it, and each part alone before the pair.
    AFD_TRY(check(config));
    AFD_TRY(check(prepare_finalize, config));
    AFD_TRY(check(experts, config));
    AFD_TRY(check_pair(prepare_finalize, experts));
    // Within a process a row is quantised as it is, for all its experts. bf16 rows come to the same
    // bits: these experts quantise them, each with its own scales.
    if (config.dispatch_dtype == RowDtype::kInt8 && experts.has_smooth_scales &&
        !prepare_finalize.is_remote) {
        return refuse(prepare_finalize.name,
                      "quantises rows without smooth scales, but experts of {} have some; "
                      "dispatch_dtype is int8 and must be bf16 or fp8",
                      with(experts.name));
    }
    if (config.has_shared_stage && experts.weight_and_reduce == WeightAndReduceKind::kNoOp) {
        return refuse(
            experts.name,
            "reduces before the rows of a shared stage are there; has_shared_stage must be false");
    }
    return {};
}

}  // namespace afd::ops
