// SPDX-License-Identifier: Apache-2.0
#pragma once

// ResolvedConfig: the configuration of afdd, and for each option where its value came from.
//
// One table (config_options.h) describes each option once: name, default, unit, bounds, meaning.
// From it come the TOML keys (`ffn_workers = 2`), the environment variables (AFD_FFN_WORKERS)
// and the flags (--ffn-workers). Precedence:
//
//   flag > environment > configuration file > --slurm > --demo > default
//
// The file is --config FILE or AFD_CONFIG; else the first that exists of ./afd.toml,
// $XDG_CONFIG_HOME/afd/config.toml (~/.config without it) and /etc/afd/afd.toml. With --demo only
// a file that is named is read, and AFD_INSTANCE and AFD_MODEL do not count.

#include <map>
#include <string>
#include <vector>

#include "daemon/config/config.h"
#include "proto/status.h"

namespace afd::daemon {

struct ResolvedConfig {
    Config config;
    // Option name -> where its value came from: "default", "--demo", "--slurm", "afd.toml:3",
    // "AFD_FFN_WORKERS", "--ffn-workers".
    std::map<std::string, std::string> origins;
    // The full path of the file that was read; empty: none.
    std::string config_file;
};

// What the configuration is resolved from; main() takes it from the process, tests make it up.
struct ConfigSources {
    // Option name -> text, as given with flags.
    std::map<std::string, std::string> flags;
    // The whole environment, name -> value.
    std::map<std::string, std::string> environment;
    // --config; empty: AFD_CONFIG, else the default places.
    std::string config_file;
    // --demo.
    bool demo = false;
    // Directory of the demo model; needed with `demo` only.
    std::string demo_model;
    // --slurm: option name -> text, of the node that this is (daemon/slurm/slurm_job.h).
    std::map<std::string, std::string> slurm;
    // Places to look when no file is named, in order.
    std::vector<std::string> default_files;
    // Whoever starts nothing can do without a model.
    bool needs_model = true;
};

// Errors (kInvalidArgument, kNotFound, kPermissionDenied: config_file.h), each naming the option or
// the line and column of the file, the value, its origin and what is allowed.
Result<ResolvedConfig> resolve_config(const ConfigSources& sources);

// The configuration for other numbers of workers; colocated there are no FFN workers to give.
// Errors: kInvalidArgument, as those of resolve_config().
Result<Config> with_workers(const Config& config, uint64_t attention_workers, uint64_t ffn_workers);

// The resolved values as a TOML file, each line with its origin as a comment. Reading it back
// gives the same configuration.
std::string describe_config(const ResolvedConfig& resolved);

// The default places of the configuration file for this environment, in order.
std::vector<std::string> default_config_files(
    const std::map<std::string, std::string>& environment);

}  // namespace afd::daemon
