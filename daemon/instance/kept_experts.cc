// SPDX-License-Identifier: Apache-2.0
#include "daemon/instance/kept_experts.h"

#include <utility>

#include "daemon/program/logging.h"
#include "model/decoder/expert_cache.h"
#include "model/weight_cache/weight_cache.h"
#include "ops/format/numeric_class.h"

namespace afd::daemon {
namespace {

bool maps_experts(control::Role role, const control::Geometry& instance) {
    return role == control::FFN || instance.num_ffn_workers() == 0 ||
           instance.shared_experts() == control::SHARED_EXPERTS_ATTENTION;
}

Result<std::vector<model::SealedFile>> map_experts(const control::Welcome& welcome,
                                                   const model::ModelFiles& files) {
    std::vector<model::SealedFile> mapped;
    AFD_ASSIGN(const model::WeightCache cache, model::WeightCache::open(welcome.weight_cache()));
    const auto numeric_class = ops::parse_numeric_class(welcome.numeric_class());
    if (!cache.is_on() || !numeric_class) return mapped;
    AFD_ASSIGN(const model::ExpertCache experts,
               model::ExpertCache::open(cache, files, *numeric_class));
    for (uint32_t layer = 0; layer < files.config().num_layers; ++layer) {
        Result<model::SealedFile> file = experts.map(layer);
        if (!file.ok()) continue;
        // Descriptors are for workers and connections.
        file.value().close_descriptor();
        mapped.push_back(std::move(file).value());
    }
    return mapped;
}

}  // namespace

void KeptExperts::keep(control::Role role,
                       const control::Welcome& welcome,
                       const model::ModelFiles& files) {
    if (!maps_experts(role, welcome.geometry())) return;
    Result<std::vector<model::SealedFile>> mapped = map_experts(welcome, files);
    files_ = mapped.ok() ? std::move(mapped).value() : std::vector<model::SealedFile>();
    log::debug("packed experts of {} layers stay mapped", files_.size());
}

}  // namespace afd::daemon
