// SPDX-License-Identifier: Apache-2.0
#include "daemon/instance/instance_setup.h"

#include <algorithm>

#include "daemon/instance/weight_cache_choice.h"
#include "daemon/placement/ucx_host.h"
#include "daemon/program/logging.h"
#include "daemon/worker/vocabulary_file.h"
#include "model/weight_cache/checksum.h"
#include "model/weight_cache/weight_cache.h"
#include "proto/failure.h"
#include "schedule/shared_memory/segment.h"

namespace afd::daemon {

Result<> InstanceSetup::choose_paths() {
    AFD_ASSIGN(paths_, instance_paths(config_.instance));
    if (!config_.socket.empty()) paths_.client_socket = config_.socket;
    AFD_TRY(create_runtime_directory(paths_.directory));
    cores_.emplace(paths_.directory);
    return {};
}

// No leftovers are looked for: what is there is the other one's.
Result<> InstanceSetup::take_instance_from(Predecessor& predecessor) {
    const handover::Offer& offer = predecessor.offer();
    if (offer.instance() != config_.instance) {
        return invalid_argument(
            "the configuration names instance '{}' now, and '{}' runs: an upgrade keeps the name",
            with(config_.instance, offer.instance()));
    }
    AFD_TRY(choose_paths());
    // Both have workers for a while.
    if (offer.control_socket() == paths_.control_socket) {
        paths_.control_socket = second_control_socket(paths_);
        AFD_TRY(check_socket_path(paths_.control_socket));
    }
    lock_ = InstanceLock::shared(predecessor.take_lock(), paths_.lock_file);
    return {};
}

Result<> InstanceSetup::take_instance() {
    AFD_TRY(choose_paths());
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
Result<> InstanceSetup::find_weight_cache() {
    const WeightCacheChoice choice = choose_weight_cache(config_);
    if (!choice.is_default) AFD_TRY(model::WeightCache::open(choice.directory));
    weight_cache_directory_ = choice.directory;
    return {};
}

Result<> InstanceSetup::choose_kernels() {
    // For a host that joins, the int4_rows of the leader count.
    if (config_.join.empty()) AFD_TRY(model_->set_int4_rows(config_.int4_rows));
    AFD_TRY(find_weight_cache());
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
    return {};
}

Result<> InstanceSetup::choose_network() {
    if (config_.transport != Transport::kUcx) return {};
    AFD_ASSIGN(const std::string host, own_ucx_host(config_));
    AFD_ASSIGN(ucx_network_, choose_ucx_network(config_, host, network_devices()));
    log::info("workers talk over UCX at {}", ucx_network_.text());
    return {};
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
    // Of the instance and no layout: each hands it out under a name of its own.
    const std::string name = vocabulary_name("/afd-" + config_.instance);
    AFD_ASSIGN(vocabulary_, create_vocabulary_file(name, trie));
    vocabulary_digest_ = fmt::format("{:016x}", model::Checksum::of(trie.image()));
    return {};
}

}  // namespace afd::daemon
