// SPDX-License-Identifier: Apache-2.0
#include "schedule/plugin/plugin_library.h"

#include <dlfcn.h>

#include "proto/failure.h"

namespace afd::schedule {
namespace {

Result<> check_table(const std::string& path, const AfdPlugin* table) {
    if (table == nullptr || table->version != AFD_PLUGIN_VERSION) {
        const std::string built =
            table == nullptr ? "does not serve" : fmt::format("was built for {}", table->version);
        return failed_precondition(
            "the plugin '{}' {}: this is version {} of the plugin interface; build it against the "
            "present plugin_api.h",
            with(path, built, AFD_PLUGIN_VERSION));
    }
    // A larger table is welcome, since fields are only added at its end.
    if (table->size < sizeof(AfdPlugin)) {
        return failed_precondition(
            "the plugin '{}': its table has {} bytes, {} are needed; set AfdPlugin.size to "
            "sizeof(AfdPlugin)",
            with(path, table->size, sizeof(AfdPlugin)));
    }
    if (table->name == nullptr || *table->name == '\0') {
        return failed_precondition("the plugin '{}' has no name; set AfdPlugin.name", with(path));
    }
    return {};
}

}  // namespace

bool names_plugin(std::string_view option) {
    // The slash is asked for so that no library is looked up along the loader's search path: the
    // file is the one that the user wrote down.
    return option.find('/') != std::string_view::npos && option.ends_with(".so");
}

Result<PluginLibrary> PluginLibrary::open(const std::string& path) {
    // RTLD_NOW: a missing symbol is an error here and not an abort in the middle of a pass.
    void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        const char* why = ::dlerror();
        return not_found("cannot load the plugin '{}': {}",
                         with(path, why ? why : "unknown error"));
    }
    const auto entry = reinterpret_cast<AfdPluginEntry>(::dlsym(handle, AFD_PLUGIN_ENTRY));
    if (entry == nullptr) {
        return failed_precondition("the plugin '{}' exports no function " AFD_PLUGIN_ENTRY
                                   "; see schedule/plugin/plugin_api.h",
                                   with(path));
    }
    const AfdPlugin* table = entry(AFD_PLUGIN_VERSION);
    AFD_TRY(check_table(path, table));
    // The handle is never closed: the functions of the table are called as long as the process
    // lives.
    return PluginLibrary(path, *table);
}

Result<> PluginLibrary::require(bool has,
                                std::string_view function,
                                std::string_view option) const {
    if (has) return {};
    return failed_precondition("the plugin '{}' has no {}, which {} needs",
                               with(path_, function, option));
}

Result<> PluginLibrary::require_scheduler() const {
    const bool has =
        table_->scheduler_create && table_->scheduler_destroy && table_->scheduler_decide;
    return require(
        has, "scheduler_create, scheduler_destroy and scheduler_decide", "ffn_scheduler");
}

Result<> PluginLibrary::require_placement() const {
    return require(table_->place_expert != nullptr, "place_expert", "expert_placement");
}

Result<> PluginLibrary::require_replica_choice() const {
    return require(table_->choose_replica != nullptr, "choose_replica", "replica_choice");
}

}  // namespace afd::schedule
