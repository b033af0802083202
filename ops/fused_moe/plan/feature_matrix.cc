// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/plan/feature_matrix.h"

#include <algorithm>

namespace afd::ops {
namespace {

// Sizes that every part takes, so that a refusal in the matrix is about the feature.
constexpr FusedMoeConfig kConfig{.hidden = 1024,
                                 .num_experts = 64,
                                 .top_k = 8,
                                 .num_shared = 1,
                                 .max_num_tokens = 256,
                                 .num_micro_batches = 1};
constexpr size_t kChunkTokens = 64;

std::string cell(std::string_view text) {
    return " " + std::string(text) + " |";
}

std::string weights_name(ExpertQuantisation quantisation) {
    return quantisation == ExpertQuantisation::kNone ? "bf16" : std::string(name_of(quantisation));
}

std::string formats_of(const ExpertsCapability& record) {
    std::string names;
    for (const ActivationFormat format :
         {ActivationFormat::kStandard, ActivationFormat::kBatched, ActivationFormat::kGrouped}) {
        if ((record.activation_formats & bit(format)) == 0) continue;
        names += (names.empty() ? "" : ", ") + std::string(name_of(format));
    }
    return names;
}

std::string weights_of(const ExpertsCapability& record) {
    std::string names;
    for (const ExpertQuantisation quantisation : kExpertQuantisations) {
        if ((record.quantisations & bit(quantisation)) == 0) continue;
        names += (names.empty() ? "" : ", ") + weights_name(quantisation);
    }
    return names;
}

std::string dtypes_of(const PrepareFinalizeCapability& record) {
    std::string names;
    for (const RowDtype dtype : {RowDtype::kBf16, RowDtype::kInt8, RowDtype::kFp8}) {
        if ((record.dispatch_dtypes & bit(dtype)) == 0) continue;
        names += (names.empty() ? "" : ", ") + std::string(name_of(dtype));
    }
    return names;
}

std::string prepare_finalize_table() {
    std::string text =
        "| PrepareFinalize | experts get | where experts run | asynchronous | rows travel as | "
        "adds "
        "shared rows | delegated reduction |\n|---|---|---|---|---|---|---|\n";
    for (const PrepareFinalizeEntry& entry : prepare_finalize_parts()) {
        const PrepareFinalizeCapability& record = *entry.capability;
        text += "|" + cell("`" + std::string(record.name) + "`") +
                cell(name_of(record.activation_format)) +
                cell(record.is_remote ? "other processes" : "this process") +
                cell(record.is_asynchronous ? "yes" : "no") + cell(dtypes_of(record)) +
                cell(record.adds_shared_rows ? "yes" : "no") +
                cell(record.delegate == WeightAndReduceKind::kDelegate ? "its own"
                                                                       : name_of(record.delegate)) +
                "\n";
    }
    return text;
}

std::string experts_table() {
    std::string text =
        "| Experts | takes | weights | int8 rows | chunks | weight-and-reduce |\n"
        "|---|---|---|---|---|---|\n";
    for (const ExpertsEntry& entry : experts_parts()) {
        const ExpertsCapability& record = *entry.capability;
        text += "|" + cell("`" + std::string(record.name) + "`") + cell(formats_of(record)) +
                cell(weights_of(record)) + cell(record.takes_int8_rows ? "yes" : "no") +
                cell(record.supports_chunking ? "yes" : "no") +
                cell(name_of(record.weight_and_reduce)) + "\n";
    }
    return text;
}

// What stands between the two products of each Experts part.
std::string activation_table() {
    std::string text = "| Experts |";
    std::string rule = "\n|---|";
    for (const ExpertActivation activation : kExpertActivations) {
        text += cell(name_of(activation));
        rule += "---|";
    }
    text += " bias |" + rule + "---|\n";
    for (const ExpertsEntry& entry : experts_parts()) {
        const ExpertsCapability& record = *entry.capability;
        text += "|" + cell("`" + std::string(record.name) + "`");
        for (const ExpertActivation activation : kExpertActivations) {
            text += cell((record.activations & bit(activation)) != 0 ? "yes" : "no");
        }
        text += cell((record.biases & bit(ExpertBias::kPresent)) != 0 ? "yes" : "no") + "\n";
    }
    return text;
}

// Numbers of the reasons, in the order in which they are first met.
class Reasons {
  public:
    std::string mark(const Result<>& result) {
        if (result.ok()) return "yes";
        const std::string& reason = result.error().message;
        const auto found = std::find(texts_.begin(), texts_.end(), reason);
        const auto index = static_cast<size_t>(found - texts_.begin());
        if (found == texts_.end()) texts_.push_back(reason);
        return "no (" + std::to_string(index + 1) + ")";
    }

    std::string list() const {
        std::string text;
        for (size_t i = 0; i < texts_.size(); ++i) {
            text += std::to_string(i + 1) + ". " + texts_[i] + "\n";
        }
        return text;
    }

  private:
    std::vector<std::string> texts_;
};

}  // namespace

std::string_view name_of(MoeFeature feature) {
    switch (feature) {
        case MoeFeature::kPlain:
            return "plain";
        case MoeFeature::kChunked:
            return "chunked";
        case MoeFeature::kInt8Dispatch:
            return "int8 dispatch";
        case MoeFeature::kFp8Dispatch:
            return "fp8 dispatch";
        case MoeFeature::kSharedStage:
            return "shared stage";
        case MoeFeature::kUnrouted:
            return "unrouted rows";
        case MoeFeature::kWeightOnInput:
            return "weight on input";
    }
    return "unknown";
}

FusedMoeConfig with_feature(FusedMoeConfig config, MoeFeature feature) {
    if (feature == MoeFeature::kChunked) config.max_chunk_tokens = kChunkTokens;
    if (feature == MoeFeature::kInt8Dispatch) config.dispatch_dtype = RowDtype::kInt8;
    if (feature == MoeFeature::kFp8Dispatch) config.dispatch_dtype = RowDtype::kFp8;
    config.has_shared_stage = feature == MoeFeature::kSharedStage;
    config.needs_routing = feature == MoeFeature::kUnrouted;
    if (feature == MoeFeature::kWeightOnInput) {
        config.apply_router_weight_on_input = true;
        config.top_k = 1;
        // What the feature asks for besides; else its own rule would be the reason everywhere.
        config.num_shared = 0;
    }
    return config;
}

std::vector<MoePair> moe_pairs(std::span<const ExpertsEntry> experts) {
    std::vector<MoePair> pairs;
    for (const PrepareFinalizeEntry& prepare_finalize : prepare_finalize_parts()) {
        for (const ExpertsEntry& part : experts) {
            for (const ExpertQuantisation quantisation : kExpertQuantisations) {
                if ((part.capability->quantisations & bit(quantisation)) == 0) continue;
                pairs.push_back({&prepare_finalize, &part, quantisation});
            }
        }
    }
    return pairs;
}

std::string feature_matrix() {
    Reasons reasons;
    std::string pairs = "| PrepareFinalize | Experts | weights |";
    std::string rule = "\n|---|---|---|";
    for (const MoeFeature feature : kMoeFeatures) {
        pairs += cell(name_of(feature));
        rule += "---|";
    }
    pairs += rule + "\n";
    for (const MoePair& pair : moe_pairs()) {
        FusedMoeConfig config = kConfig;
        config.quantisation = pair.quantisation;
        pairs += "|" + cell("`" + std::string(pair.prepare_finalize->capability->name) + "`") +
                 cell("`" + std::string(pair.experts->capability->name) + "`") +
                 cell(weights_name(pair.quantisation));
        for (const MoeFeature feature : kMoeFeatures) {
            pairs += cell(reasons.mark(check_composition(
                *pair.prepare_finalize, *pair.experts, with_feature(config, feature))));
        }
        pairs += "\n";
    }
    return prepare_finalize_table() + "\n" + experts_table() + "\n" + activation_table() + "\n" +
           pairs + "\n" + reasons.list();
}

}  // namespace afd::ops
