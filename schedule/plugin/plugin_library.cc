// SPDX-License-Identifier: Apache-2.0
#include "schedule/plugin/plugin_library.h"

#include <dlfcn.h>

#include <algorithm>

#include "proto/failure.h"

namespace afd::schedule {
namespace {

constexpr size_t kNameBytesMax = 64;

bool is_printable(char c) {
    return c >= ' ' && c <= '~';
}

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
    // Else it could write lines of its own into logs, or colour a terminal.
    const std::string_view name = table->name;
    if (name.size() > kNameBytesMax || !std::ranges::all_of(name, is_printable)) {
        return failed_precondition(
            "the plugin '{}': AfdPlugin.name must be at most {} printable characters of ASCII",
            with(path, kNameBytesMax));
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

Result<> PluginLibrary::require(std::initializer_list<Function> functions,
                                std::string_view option) const {
    std::string missing;
    for (const Function& function : functions) {
        if (!function.is_there)
            missing += (missing.empty() ? "" : ", ") + std::string(function.name);
    }
    if (missing.empty()) return {};
    return failed_precondition("the plugin '{}' has no {}, which {} needs",
                               with(path_, missing, option));
}

Result<> PluginLibrary::require_scheduler() const {
    return require({{"scheduler_create", table_->scheduler_create != nullptr},
                    {"scheduler_destroy", table_->scheduler_destroy != nullptr},
                    {"scheduler_decide", table_->scheduler_decide != nullptr}},
                   "ffn_scheduler");
}

Result<> PluginLibrary::require_placement() const {
    return require({{"place_expert", table_->place_expert != nullptr}}, "expert_placement");
}

Result<> PluginLibrary::require_replica_choice() const {
    return require({{"choose_replica", table_->choose_replica != nullptr}}, "replica_choice");
}

}  // namespace afd::schedule
