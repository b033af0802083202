// SPDX-License-Identifier: Apache-2.0
#pragma once

// PluginLibrary: a shared library with a table of plugin_api.h. It runs with the rights of the
// process that loads it, so its path comes from the configuration and from nowhere else.

#include <string>
#include <string_view>

#include "proto/status.h"
#include "schedule/plugin/plugin_api.h"

namespace afd::schedule {

// Whether the value of an option names a shared library: it contains a '/' and ends in ".so".
bool names_plugin(std::string_view option);

class PluginLibrary {
  public:
    // Loads the library; it stays loaded until the process ends, whatever becomes of the object.
    // Errors, each with the path: kNotFound: it cannot be loaded, with the loader's words.
    // kFailedPrecondition: it exports no afd_plugin, or for another version, or its table is too
    // small or has no name.
    static Result<PluginLibrary> open(const std::string& path);

    const AfdPlugin& table() const { return *table_; }
    const std::string& path() const { return path_; }

    // Errors: kFailedPrecondition: the library does not offer this part, with what it is for.
    Result<> require_scheduler() const;
    Result<> require_placement() const;
    Result<> require_replica_choice() const;

  private:
    PluginLibrary(std::string path, const AfdPlugin& table)
        : path_(std::move(path)), table_(&table) {}
    Result<> require(bool has, std::string_view function, std::string_view option) const;

    std::string path_;
    const AfdPlugin* table_;
};

}  // namespace afd::schedule
