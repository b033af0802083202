// SPDX-License-Identifier: Apache-2.0
#include "clients/afdctl/cluster_directory.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>

#include "clients/afdctl/cluster_file.h"

namespace afd::client {
namespace {

constexpr mode_t kKeyMode = 0600;
constexpr mode_t kCertificateMode = 0644;
constexpr int64_t kDaySeconds = 86'400;
// Clocks of hosts differ by so much at most, or their certificates are refused on their first day.
constexpr int64_t kEarlySeconds = 300;

int64_t now_s() {
    return std::chrono::duration_cast<std::chrono::seconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

Validity from_now(int64_t days) {
    return {now_s() - kEarlySeconds, now_s() + days * kDaySeconds};
}

afd::Error failure(Code code, std::string message) {
    return {code, std::move(message)};
}

Result<> make_directory(const std::string& path) {
    if (::mkdir(path.c_str(), S_IRWXU) == 0) return {};
    if (errno != EEXIST) {
        return failure(Code::kPermissionDenied,
                       fmt::format("{}: this directory cannot be made: {}; make the ones above it "
                                   "first, or give another",
                                   path,
                                   std::strerror(errno)));
    }
    struct stat about {};
    if (::stat(path.c_str(), &about) != 0 || !S_ISDIR(about.st_mode)) {
        return failure(Code::kInvalidArgument,
                       fmt::format("{}: is no directory; give one, or a name for a new one", path));
    }
    if ((about.st_mode & (S_IRWXG | S_IRWXO)) == 0) return {};
    return failure(Code::kPermissionDenied,
                   fmt::format("{0}: others may enter this directory (mode {1:03o}), where keys "
                               "belong; chmod 700 {0}, or give another",
                               path,
                               about.st_mode & 0777));
}

// The parse of a file's text, with the file in the error.
template <typename Parsed>
Result<Parsed> parse_file(const std::string& path, const std::string& text) {
    Result<Parsed> parsed = Parsed::parse(text);
    if (parsed.ok()) return parsed;
    return failure(parsed.error().code,
                   path + ": " + parsed.error().message + "; bring back the right file");
}

// The key of a file, which is made if it is missing.
Result<PrivateKey> have_key(const std::string& path) {
    AFD_ASSIGN(const std::optional<std::string> text, read_cluster_file(path));
    if (text) return parse_file<PrivateKey>(path, *text);
    AFD_ASSIGN(PrivateKey key, PrivateKey::generate());
    AFD_TRY(write_cluster_file(path, key.pem(), kKeyMode));
    return key;
}

Result<> check_authority(const std::string& path,
                         const Certificate& certificate,
                         const PrivateKey& key) {
    if (!certificate.is_of(key)) {
        return failure(Code::kInvalidArgument,
                       fmt::format("{0}/ca.key: is not the key of {0}/ca.pem; bring back the right "
                                   "one, or make a new cluster in another directory",
                                   path));
    }
    if (certificate.validity().until_s > now_s()) return {};
    return failure(Code::kFailedPrecondition,
                   fmt::format("{}/ca.pem: this CA has expired; make a new cluster in another "
                               "directory, and give every host its files",
                               path));
}

// Of a host's two files at `path`, without their endings.
Result<> check_host(const std::string& path,
                    const std::string& name,
                    const Certificate& certificate,
                    const PrivateKey& key,
                    const Certificate& authority) {
    constexpr const char* kMend = "bring back the right one, or remove it and run this again";
    if (!certificate.is_signed_by(authority)) {
        return failure(
            Code::kInvalidArgument,
            fmt::format("{}.pem: is not signed by the CA of this directory; {}", path, kMend));
    }
    if (certificate.name() != name) {
        return failure(Code::kInvalidArgument,
                       fmt::format("{}.pem: is the certificate of the host '{}'; {}",
                                   path,
                                   certificate.name(),
                                   kMend));
    }
    if (certificate.is_of(key)) return {};
    return failure(Code::kInvalidArgument,
                   fmt::format("{0}.key: is not the key of {0}.pem; bring back the right one, or "
                               "remove both and run this again",
                               path));
}

}  // namespace

ClusterDirectory::ClusterDirectory(std::string path,
                                   PrivateKey key,
                                   Certificate certificate,
                                   bool is_new)
    : path_(std::move(path)),
      key_(std::move(key)),
      certificate_(std::move(certificate)),
      entry_{"ca", is_new, certificate_.validity().until_s} {}

Result<ClusterDirectory> ClusterDirectory::open(const std::string& path) {
    AFD_TRY(make_directory(path));
    const std::string certificate_path = path + "/ca.pem";
    const std::string key_path = path + "/ca.key";
    AFD_ASSIGN(const std::optional<std::string> text, read_cluster_file(certificate_path));
    if (!text) {
        AFD_ASSIGN(PrivateKey key, have_key(key_path));
        AFD_ASSIGN(Certificate made, Certificate::of_authority(key, from_now(kAuthorityDays)));
        AFD_TRY(write_cluster_file(certificate_path, made.pem(), kCertificateMode));
        return ClusterDirectory(path, std::move(key), std::move(made), true);
    }
    AFD_ASSIGN(const std::optional<std::string> key_text, read_cluster_file(key_path));
    if (!key_text) {
        return failure(Code::kFailedPrecondition,
                       fmt::format("{0}: is missing beside ca.pem, and without it no host gets a "
                                   "certificate; bring it back, or make a new cluster in another "
                                   "directory",
                                   key_path));
    }
    AFD_ASSIGN(Certificate certificate, parse_file<Certificate>(certificate_path, *text));
    AFD_ASSIGN(PrivateKey key, parse_file<PrivateKey>(key_path, *key_text));
    AFD_TRY(check_authority(path, certificate, key));
    return ClusterDirectory(path, std::move(key), std::move(certificate), false);
}

Result<ClusterDirectory::Entry> ClusterDirectory::add(const std::string& name, int64_t days) const {
    const std::string certificate_path = path_ + "/" + name + ".pem";
    const std::string key_path = path_ + "/" + name + ".key";
    AFD_ASSIGN(const std::optional<std::string> text, read_cluster_file(certificate_path));
    if (text) {
        AFD_ASSIGN(const std::optional<std::string> key_text, read_cluster_file(key_path));
        if (!key_text) {
            return failure(Code::kFailedPrecondition,
                           fmt::format("{}: is missing beside {}; bring it back, or remove the "
                                       "other one and run this again",
                                       key_path,
                                       certificate_path));
        }
        AFD_ASSIGN(const Certificate there, parse_file<Certificate>(certificate_path, *text));
        AFD_ASSIGN(const PrivateKey key, parse_file<PrivateKey>(key_path, *key_text));
        AFD_TRY(check_host(path_ + "/" + name, name, there, key, certificate_));
        return Entry{name, false, there.validity().until_s};
    }
    AFD_ASSIGN(const PrivateKey key, have_key(key_path));
    Validity validity = from_now(days);
    validity.until_s = std::min(validity.until_s, entry_.until_s);
    AFD_ASSIGN(const Certificate made,
               Certificate::of_host(name, key, validity, certificate_, key_));
    AFD_TRY(write_cluster_file(certificate_path, made.pem(), kCertificateMode));
    return Entry{name, true, made.validity().until_s};
}

}  // namespace afd::client
