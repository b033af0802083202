// SPDX-License-Identifier: Apache-2.0
#include "daemon/afdd/instance_setup.h"

#include <algorithm>

#include "daemon/afdd/configured_welcome.h"
#include "daemon/config/instance_geometry.h"
#include "daemon/config/placement_source.h"
#include "daemon/gateway/random_seed.h"
#include "daemon/program/logging.h"
#include "daemon/worker/vocabulary_file.h"
#include "daemon/worker/worker_setup.h"
#include "model/weight_cache/weight_cache.h"
#include "schedule/dispatch/lost_ranks.h"

namespace afd::daemon {

Result<> InstanceSetup::take_instance() {
    AFD_ASSIGN(paths_, instance_paths(config_.instance));
    if (!config_.socket.empty()) paths_.client_socket = config_.socket;
    AFD_TRY(create_runtime_directory(paths_.directory));
    AFD_ASSIGN(lock_, InstanceLock::acquire(paths_.lock_file, config_.instance));
    // The lock file can be removed while its afdd lives; what it has open cannot.
    if (const auto owner = schedule::Segment::find_owner(config_.instance)) {
        return Error{Code::kAlreadyExists,
                     fmt::format("instance '{}' is already served by afdd with pid {}, though its "
                                 "lock file '{}' was removed; stop it (kill -TERM), or start this "
                                 "one under another name with --instance",
                                 config_.instance,
                                 *owner,
                                 paths_.lock_file)};
    }
    // Behind the lock: nobody else of this name can be using them.
    const size_t num_left = schedule::Segment::remove_leftovers(config_.instance);
    if (num_left > 0) {
        log::info("removed {} segments of an afdd that did not end properly", num_left);
    }
    return {};
}

Result<> InstanceSetup::open_model() {
    AFD_ASSIGN(model_, model::ModelFiles::open(config_.model, config_.kv_dtype));
    model_->set_residual(config_.residual);
    if (const std::string unused = model_->unused_text(); !unused.empty()) {
        log::info("{}", unused);
    }
    AFD_ASSIGN(tokenizer_, model::Tokenizer::load(config_.model));
    return {};
}

// A directory that is named must be usable; the default one may fail, the workers then say so.
Result<> InstanceSetup::choose_weight_cache() {
    if (config_.weight_cache == "off") return {};
    if (config_.weight_cache != "auto") {
        AFD_TRY(model::WeightCache::open(config_.weight_cache));
        weight_cache_directory_ = config_.weight_cache;
        return {};
    }
    weight_cache_directory_ = model::default_weight_cache_directory();
    if (weight_cache_directory_.empty()) {
        log::info(
            "packed weights are not kept: neither XDG_CACHE_HOME nor HOME is set; name a "
            "directory with weight_cache");
    }
    return {};
}

Result<> InstanceSetup::plan() {
    AFD_TRY(choose_weight_cache());
    numeric_class_ = ops::best_numeric_class();
    if (config_.numeric_class != "auto") {
        const auto wanted = ops::parse_numeric_class(config_.numeric_class);
        if (!wanted || !ops::supported(*wanted)) {
            return Error{Code::kInvalidArgument,
                         fmt::format("numeric_class = {}: this processor cannot run it; the best "
                                     "that it can is {}",
                                     config_.numeric_class,
                                     ops::name_of(numeric_class_))};
        }
        numeric_class_ = *wanted;
    }
    if (!ops::is_native(numeric_class_)) {
        log::warn(
            "numeric_class = {}: this processor lacks its instructions; others give the same "
            "results, but take several times as long as {}",
            ops::name_of(numeric_class_),
            ops::name_of(ops::best_numeric_class()));
    }
    AFD_ASSIGN(cpus_, plan_cpus(config_, allowed_cpus()));
    // Anew at each start, so that a worker of an afdd that died cannot attach to the next one's
    // segments.
    instance_id_ = draw_random();
    AFD_ASSIGN(const schedule::RowDtype row_dtype,
               choose_row_dtype(config_.dispatch_dtype, model_->config()));
    identity_ = make_identity(instance_id_, *model_, numeric_class_, config_.router, row_dtype);
    segment_prefix_ = schedule::segment_prefix(config_.instance, instance_id_);
    // Here and not with the segments: files and libraries that the user names are for the user to
    // mend.
    return list_rank_experts();
}

Result<> InstanceSetup::create_segments() {
    AFD_ASSIGN(
        const schedule::Geometry geometry,
        make_geometry(model_->config(), instance_geometry(config_, cpus_, identity_.row_dtype)));
    AFD_ASSIGN(const schedule::WindowLayout layout, schedule::WindowLayout::compute(geometry));
    AFD_ASSIGN(schedule::InstanceSegments segments,
               schedule::InstanceSegments::create(segment_prefix_, layout, identity_));
    segments_ = std::make_unique<schedule::InstanceSegments>(std::move(segments));
    const schedule::TwoPhaseCall call =
        two_phase_call(configured_welcome(config_, cpus_), geometry);
    two_phase_segments_ = std::make_unique<TwoPhaseSegments>(
        segment_prefix_,
        geometry.num_sessions,
        config_.two_phase_memory_max,
        schedule::two_phase_sizes_max(
            call,
            geometry.num_experts,
            two_phase_row_bytes(
                identity_.row_dtype, model_->config().hidden, config_.row_checksums)));
    segment_bytes_ = schedule::InstanceSegments::total_bytes(layout);
    log::debug("segments {}-*: {} MiB", segment_prefix_, segment_bytes_ >> 20);
    return create_vocabulary();
}

// As many tokens as the model has logits: those that only one of the two knows are never allowed.
Result<> InstanceSetup::create_vocabulary() {
    using model::VocabularyTrie;
    const uint32_t num_known = std::min(model_->config().vocab_size, tokenizer_->size());
    std::vector<std::string> tokens(model_->config().vocab_size);
    for (uint32_t id = 0; id < num_known; ++id) {
        const std::string& special = tokenizer_->special_text(id);
        tokens[id] = tokenizer_->token_bytes(id);
        if (!special.empty()) tokens[id] = VocabularyTrie::kMark + special;
        // A lone byte of this kind is in no text.
        const bool is_text = tokens[id].find(VocabularyTrie::kMark) == std::string::npos;
        if (special.empty() && !is_text) tokens[id].clear();
    }
    const model::VocabularyTrie trie(tokens);
    AFD_ASSIGN(vocabulary_, create_vocabulary_file(vocabulary_name(segment_prefix_), trie));
    return {};
}

std::vector<std::pair<std::string, int>> InstanceSetup::handles(schedule::Role role,
                                                                uint32_t index) const {
    auto handles = segments_->handles(role, index);
    // Only attention workers sample.
    if (role == schedule::Role::kAttention) {
        handles.emplace_back(vocabulary_name(segment_prefix_), vocabulary_.get());
    }
    return handles;
}

// What each rank holds of any MoE layer: a placement may differ from layer to layer.
Result<> InstanceSetup::list_rank_experts() {
    rank_experts_.resize(config_.num_ffn_workers());
    if (rank_experts_.empty()) return {};
    const model::ModelConfig& model = model_->config();
    const uint32_t num_shared =
        dispatched_shared_slots(model, instance_geometry(config_, cpus_, identity_.row_dtype));
    AFD_ASSIGN(placement_, plan_placement(config_, layer_experts(model, num_shared)));
    const bool is_default =
        config_.expert_placement == "round_robin" && config_.replica_choice == "session";
    // Workers compute the default themselves. Anything else is resolved once, here: all of them
    // must have the same table.
    if (!is_default) expert_table_ = to_wire(*placement_);
    for (uint32_t rank = 0; rank < config_.num_ffn_workers(); ++rank) {
        for (const schedule::HeldExpert& held : placement_->held_experts(rank)) {
            if (model.is_moe_layer(held.layer_id)) rank_experts_[rank].insert(held.expert);
        }
    }
    return {};
}

CanDoWithout InstanceSetup::can_do_without() const {
    if (!placement_) return {};
    return [this](const std::vector<bool>& is_lost) {
        return schedule::can_do_without(is_lost, *placement_, config_.router);
    };
}

control::Welcome InstanceSetup::common_welcome() const {
    control::Welcome welcome = configured_welcome(config_, cpus_);
    welcome.set_segment_prefix(segment_prefix_);
    *welcome.mutable_geometry() = instance_geometry(config_, cpus_, identity_.row_dtype);
    welcome.set_model_dir(model_->directory());
    welcome.set_numeric_class(std::string(ops::name_of(numeric_class_)));
    if (expert_table_) *welcome.mutable_experts() = *expert_table_;
    welcome.set_instance_id(instance_id_);
    welcome.set_model_identity(model_->identity());
    welcome.set_weight_cache(weight_cache_directory_);
    return welcome;
}

}  // namespace afd::daemon
