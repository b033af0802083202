// SPDX-License-Identifier: Apache-2.0
#pragma once

// InstanceSetup: what an instance has as long as it lives, however many workers it has: its name,
// the opened model, the kernels, and where packed weights are kept. What follows from the numbers
// of workers is InstanceLayout. It runs nothing; that is Afdd. What a worker makes out of it is
// WorkerSetup (daemon/worker/worker_setup.h).
//
// Made in steps, because each has an exit code of its own. What is made stays as it is until the
// end.

#include <optional>
#include <string>

#include "daemon/config/config.h"
#include "daemon/handover/predecessor.h"
#include "daemon/instance/core_claims.h"
#include "daemon/instance/instance_lock.h"
#include "daemon/instance/ucx_network.h"
#include "daemon/loop/unique_fd.h"
#include "model/family/model_files.h"
#include "model/tokenizer/tokenizer.h"
#include "ops/format/numeric_class.h"
#include "proto/socket_path.h"
#include "proto/status.h"

namespace afd::daemon {

class InstanceSetup {
  public:
    // REQUIRES: `config` outlives it.
    explicit InstanceSetup(const Config& config) : config_(config) {}

    // The steps, each once and in this order.
    // Errors: kAlreadyExists: another afdd holds the name. Else what is wrong with the name or the
    // runtime directory.
    Result<> take_instance();
    // Instead, from the afdd that has it. Errors: kInvalidArgument: it is of another name. Else
    // what is wrong with the name or the runtime directory.
    Result<> take_instance_from(Predecessor& predecessor);
    // Errors: those of the model's files.
    Result<> open_model();
    // Errors: kInvalidArgument and others: an option that this machine or model cannot follow.
    Result<> choose_kernels();
    // Of an afdd that has not joined another; nothing to do without transport = ucx.
    // Errors: kInvalidArgument: ucx_host and ucx_devices (ucx_network.h).
    Result<> choose_network();
    // Errors: those of create_vocabulary_file().
    Result<> create_vocabulary();

    // REQUIRES of these: the steps were taken.
    const InstancePaths& paths() const { return paths_; }
    const InstanceLock& lock() const { return *lock_; }
    const CoreClaims& cores() const { return *cores_; }
    const model::ModelFiles& model() const { return *model_; }
    model::Tokenizer& tokenizer() { return *tokenizer_; }
    ops::NumericClass numeric_class() const { return numeric_class_; }
    // Empty: packed weights are not kept.
    const std::string& weight_cache_directory() const { return weight_cache_directory_; }
    // With transport = ucx.
    const UcxNetwork& ucx_network() const { return ucx_network_; }
    // The image of the vocabulary's trie (daemon/worker/vocabulary_file.h); stays this object's.
    int vocabulary() const { return vocabulary_.get(); }
    // Of that image, 16 hexadecimal digits: equal ones mean equal bytes of every token that
    // workers see.
    const std::string& vocabulary_digest() const { return vocabulary_digest_; }

  private:
    Result<> choose_paths();
    Result<> find_weight_cache();

    const Config& config_;
    InstancePaths paths_;
    std::optional<InstanceLock> lock_;
    std::optional<CoreClaims> cores_;
    std::optional<model::ModelFiles> model_;
    std::optional<model::Tokenizer> tokenizer_;
    ops::NumericClass numeric_class_ = ops::NumericClass::kPortable;
    std::string weight_cache_directory_;
    UcxNetwork ucx_network_;
    UniqueFd vocabulary_;
    std::string vocabulary_digest_;
};

}  // namespace afd::daemon
