// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/api_keys.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "daemon/config/own_file.h"
#include "daemon/http/message/http_word.h"
#include "proto/failure.h"

namespace afd::daemon {

namespace {

constexpr size_t kFileBytesMax = size_t{1} << 20;

// Compares to the end: when it stopped would tell how much of a guess is right.
bool is_same(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;
    unsigned difference = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
    }
    return difference == 0;
}

Result<> check_key_file(const std::string& file, const struct stat& status) {
    if ((status.st_mode & 077U) != 0) {
        return permission_denied(
            "http_keys: others than its owner can reach '{0}'; take that from them: chmod go= "
            "'{0}'",
            with(file));
    }
    if (!S_ISREG(status.st_mode)) return data_loss("{}: not a regular file", with(file));
    if (static_cast<size_t>(status.st_size) > kFileBytesMax) {
        return data_loss("{}: {} bytes; at most {} are accepted",
                         with(file, status.st_size, kFileBytesMax));
    }
    return {};
}

Error unreadable_keys(const std::string& file, int error) {
    const char* why = std::strerror(error);
    if (error == ENOENT || error == ENOTDIR) return not_found("{}: {}", with(file, why));
    if (error == EACCES) return permission_denied("{}: {}", with(file, why));
    return unavailable("{}: {}", with(file, why));
}

Result<std::string> read_keys(const std::string& file) {
    AFD_ASSIGN(
        std::string text,
        read_own_file(file,
                      kFileBytesMax + 1,
                      {.check = [&](const auto& status) { return check_key_file(file, status); },
                       .unreadable = [&](int error) { return unreadable_keys(file, error); }}));
    if (text.size() <= kFileBytesMax) return text;
    return data_loss("{}: grew while it was read; at most {} bytes are accepted",
                     with(file, kFileBytesMax));
}

}  // namespace

Result<ApiKeys> ApiKeys::load(const std::string& file, std::string_view environment_key) {
    ApiKeys keys;
    if (file.empty()) {
        if (!environment_key.empty()) {
            AFD_TRY(keys.add("AFD_API_KEY", environment_key, "AFD_API_KEY"));
        }
        return keys;
    }
    AFD_ASSIGN(const std::string text, read_keys(file));
    std::istringstream lines(text);
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
        std::istringstream words(line);
        std::string first;
        std::string second;
        std::string rest;
        words >> first >> second >> rest;
        if (first.empty() || first.starts_with('#')) continue;
        const std::string where = fmt::format("{}:{}", file, number);
        if (!rest.empty()) {
            return invalid_argument("{}: must be KEY, or NAME KEY", with(where));
        }
        const std::string name = second.empty() ? fmt::format("line {}", number) : first;
        AFD_TRY(keys.add(name, second.empty() ? first : second, where));
    }
    if (!keys.empty()) return keys;
    return invalid_argument("http_keys: '{}' has no key; write one a line", with(file));
}

Result<> ApiKeys::add(std::string name, std::string_view key, const std::string& where) {
    if (key.size() < kKeyBytesMin) {
        return invalid_argument("{}: a key of {} characters; it must have {} or more",
                                with(where, key.size(), kKeyBytesMin));
    }
    keys_.push_back({std::move(name), std::string(key)});
    return {};
}

std::optional<std::string> ApiKeys::name_of(std::string_view authorization) const {
    constexpr std::string_view kBearer = "Bearer ";
    if (!begins_with_word(authorization, kBearer)) return std::nullopt;
    std::string_view given = authorization.substr(kBearer.size());
    given.remove_prefix(std::min(given.find_first_not_of(' '), given.size()));
    const Key* found = nullptr;
    for (const Key& key : keys_) {
        if (is_same(key.key, given)) found = &key;
    }
    return found == nullptr ? std::nullopt : std::optional(found->name);
}

}  // namespace afd::daemon
