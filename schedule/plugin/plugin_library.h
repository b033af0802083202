// SPDX-License-Identifier: Apache-2.0
#pragma once

// PluginLibrary: a shared library with a table of plugin_api.h. It runs with the rights of the
// process that loads it, so its path comes from the configuration and from nowhere else.

#include <initializer_list>
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
    // small, has no name, or one with characters that are not printable ASCII.
    static Result<PluginLibrary> open(const std::string& path);

    const AfdPlugin& table() const { return *table_; }
    const std::string& path() const { return path_; }

    // Errors: kFailedPrecondition: the library does not offer this part: what is missing, and what
    // it is for.
    Result<> require_scheduler() const;
    Result<> require_placement() const;
    Result<> require_replica_choice() const;

  private:
    PluginLibrary(std::string path, const AfdPlugin& table)
        : path_(std::move(path)), table_(&table) {}
    struct Function {
        std::string_view name;
        bool is_there = false;
    };
    Result<> require(std::initializer_list<Function> functions, std::string_view option) const;

    std::string path_;
    const AfdPlugin* table_;
};

}  // namespace afd::schedule
