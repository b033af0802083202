// SPDX-License-Identifier: Apache-2.0
#include "daemon/cluster/cluster_identity.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "daemon/config/own_file.h"
#include "proto/failure.h"
#include "proto/host_name.h"

namespace afd::daemon {

namespace {

template <auto function>
struct FreeWith {
    void operator()(auto* object) const { function(object); }
};
using Memory = std::unique_ptr<BIO, FreeWith<BIO_free>>;
using Certificate = std::unique_ptr<X509, FreeWith<X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, FreeWith<EVP_PKEY_free>>;
using Store = std::unique_ptr<X509_STORE, FreeWith<X509_STORE_free>>;
using StoreContext = std::unique_ptr<X509_STORE_CTX, FreeWith<X509_STORE_CTX_free>>;

// The paths of a host's files, the command that makes them, and how one that is missing comes here.
struct Files {
    std::string ca;
    std::string certificate;
    std::string key;
    std::string command;
    std::string remedy;
};

// A host that was given files for one name and goes by another.
std::string other_name(const std::string& directory, const std::string& name) {
    std::error_code error;
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
        const std::filesystem::path& path = entry.path();
        const std::string stem = path.stem().string();
        const bool is_of_host = path.extension() == ".key" && stem != "ca" && stem != kLeaderName;
        if (is_of_host && stem != name) names.push_back(stem);
    }
    if (names.size() != 1 || name == kLeaderName) return "";
    return "; or name this host by its files: --host-name " + names.front();
}

// Where the key of the CA is, the command makes what is missing. Elsewhere it would make another
// CA, whose certificates nobody takes; only a cluster that is not there yet has none.
Files files_of(const std::string& directory, const std::string& name) {
    const auto is_there = [&](const char* file) {
        return ::access((directory + file).c_str(), F_OK) == 0;
    };
    const std::string start = directory + "/" + name;
    const bool is_new = name == kLeaderName && !is_there("/ca.pem");
    const bool makes_it = is_new || is_there("/ca.key");
    const std::string command = "afdctl cluster init " + (makes_it ? directory : "DIR") +
                                (name == kLeaderName ? "" : " --host " + name);
    return {directory + "/ca.pem",
            start + ".pem",
            start + ".key",
            command,
            makes_it ? "`" + command + "` makes it"
                     : "copy it from the directory DIR that has ca.key; there `" + command +
                           "` makes it" + other_name(directory, name)};
}

// What the library says about its last failure.
std::string last_reason() {
    const char* reason = ERR_reason_error_string(ERR_peek_last_error());
    return reason != nullptr ? reason : "no reason given";
}

// `is_secret`: nobody but its owner may be able to read it.
Result<> check_cluster_file(const std::string& path, const struct stat& status, bool is_secret) {
    if (!S_ISREG(status.st_mode)) return invalid_argument("{}: is no file", with(path));
    if (is_secret && (status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        return permission_denied(
            "{0}: others than its owner can use this key (mode {1:03o}); chmod 600 {0}",
            with(path, status.st_mode & 0777));
    }
    return {};
}

// Errors: as of load().
Result<std::string> read_cluster_file(const std::string& path, const Files& files, bool is_secret) {
    constexpr size_t kBytesMax = size_t{64} << 10;  // A certificate has less than 2.
    const OwnFileRules rules = {
        .check = [&](const auto& status) { return check_cluster_file(path, status, is_secret); },
        .unreadable =
            [&](int error) {
                return error == ENOENT ? not_found("{}: no such file; {}", with(path, files.remedy))
                                       : permission_denied("{}: cannot be read: {}",
                                                           with(path, std::strerror(error)));
            }};
    return read_own_file(path, kBytesMax, rules);
}

Error not_pem(const std::string& path, const char* what, const Files& files) {
    return data_loss("{}: is no {} in PEM form ({}); copy it once more from where `{}` made it",
                     with(path, what, last_reason(), files.command));
}

Result<Certificate> read_certificate(const std::string& path, const Files& files) {
    AFD_ASSIGN(const std::string bytes, read_cluster_file(path, files, false));
    ERR_clear_error();
    const Memory memory(BIO_new_mem_buf(bytes.data(), static_cast<int>(bytes.size())));
    Certificate certificate(PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr));
    if (certificate == nullptr) return not_pem(path, "certificate", files);
    return certificate;
}

Result<PrivateKey> read_key(const Files& files) {
    AFD_ASSIGN(std::string bytes, read_cluster_file(files.key, files, true));
    ERR_clear_error();
    const Memory memory(BIO_new_mem_buf(bytes.data(), static_cast<int>(bytes.size())));
    // An empty passphrase: without one the library would ask for it at the terminal.
    char no_passphrase[] = "";
    PrivateKey key(PEM_read_bio_PrivateKey(memory.get(), nullptr, nullptr, no_passphrase));
    OPENSSL_cleanse(bytes.data(), bytes.size());
    if (key == nullptr) return not_pem(files.key, "private key without passphrase", files);
    return key;
}

std::string date_of(const ASN1_TIME* time) {
    tm parts{};
    if (ASN1_TIME_to_tm(time, &parts) != 1) return "an unreadable date";
    return fmt::format("{:04}-{:02}-{:02} {:02}:{:02} UTC",
                       parts.tm_year + 1900,
                       parts.tm_mon + 1,
                       parts.tm_mday,
                       parts.tm_hour,
                       parts.tm_min);
}

// Unix time. The dates of a certificate that was checked are readable.
int64_t seconds_of(const ASN1_TIME* time) {
    tm parts{};
    return ASN1_TIME_to_tm(time, &parts) == 1 ? static_cast<int64_t>(::timegm(&parts)) : 0;
}

Result<> check_dates(const X509& certificate, const std::string& path, const std::string& remedy) {
    const ASN1_TIME* from = X509_get0_notBefore(&certificate);
    const ASN1_TIME* to = X509_get0_notAfter(&certificate);
    const bool is_early = X509_cmp_current_time(from) > 0;
    if (!is_early && X509_cmp_current_time(to) > 0) return {};
    return failed_precondition("{}: this certificate {}: it is valid from {} to {}; {}",
                               with(path,
                                    is_early ? "is not valid yet" : "has expired",
                                    date_of(from),
                                    date_of(to),
                                    is_early ? "is the clock of this host right?" : remedy));
}

// Whether a peer that has the CA will take the certificate: of what the checks with words of their
// own leave, its purposes.
Result<> check_chain(X509* certificate, X509* ca, const Files& files) {
    const Store store(X509_STORE_new());
    const StoreContext context(X509_STORE_CTX_new());
    const bool is_ready =
        store != nullptr && context != nullptr && X509_STORE_add_cert(store.get(), ca) == 1 &&
        X509_STORE_CTX_init(context.get(), store.get(), certificate, nullptr) == 1 &&
        X509_STORE_CTX_set_default(context.get(), "ssl_client") == 1;
    if (!is_ready) return internal("cannot check {}: {}", with(files.certificate, last_reason()));
    if (X509_verify_cert(context.get()) == 1) return {};
    return invalid_argument(
        "{}: peers would refuse this certificate: {}; `{}` makes one that they take",
        with(files.certificate,
             X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get())),
             files.command));
}

constexpr const char* kNewCa = "make a new cluster in another directory";

std::string how_to_renew(const Files& files) {
    return "remove it where ca.key is, run `" + files.command + "` there and copy it";
}

Result<> check_files(X509* ca, X509* certificate, EVP_PKEY* key, const Files& files) {
    AFD_TRY(check_dates(*ca, files.ca, kNewCa));
    if (X509_check_private_key(certificate, key) != 1) {
        return invalid_argument("{}: is not the key of {}; copy both from where `{}` made them",
                                with(files.key, files.certificate, files.command));
    }
    if (X509_verify(certificate, X509_get0_pubkey(ca)) != 1) {
        return invalid_argument("{}: is not signed by the CA of {}; copy both from one directory",
                                with(files.certificate, files.ca));
    }
    AFD_TRY(check_dates(*certificate, files.certificate, how_to_renew(files)));
    return check_chain(certificate, ca, files);
}

Result<> apply(SSL_CTX* settings, X509* ca, X509* certificate, EVP_PKEY* key) {
    SSL_CTX_set_options(settings, SSL_OP_NO_TICKET);
    SSL_CTX_set_session_cache_mode(settings, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_verify(settings, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    // What is queued may grow, and move, between two tries to send its start.
    SSL_CTX_set_mode(settings,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                         SSL_MODE_RELEASE_BUFFERS);
    const bool is_done = SSL_CTX_set_min_proto_version(settings, TLS1_3_VERSION) == 1 &&
                         SSL_CTX_set_max_proto_version(settings, TLS1_3_VERSION) == 1 &&
                         SSL_CTX_set_num_tickets(settings, 0) == 1 &&
                         X509_STORE_add_cert(SSL_CTX_get_cert_store(settings), ca) == 1 &&
                         SSL_CTX_use_certificate(settings, certificate) == 1 &&
                         SSL_CTX_use_PrivateKey(settings, key) == 1;
    if (is_done) return {};
    return failed_precondition("TLS 1.3 cannot be set up with the certificate of this host: {}",
                               with(last_reason()));
}

}  // namespace

std::string host_of(const x509_st* certificate) {
    const X509_NAME* subject = X509_get_subject_name(certificate);
    const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    if (at < 0 || X509_NAME_get_index_by_NID(subject, NID_commonName, at) >= 0) return "";
    const ASN1_STRING* text = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at));
    // The characters that the check knows are the same in every encoding that it lets through.
    std::string name(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                     static_cast<size_t>(ASN1_STRING_length(text)));
    return check_host_name(name).ok() ? name : "";
}

void ClusterIdentity::FreeSettings::operator()(ssl_ctx_st* settings) const {
    SSL_CTX_free(settings);
}

Result<ClusterIdentity> ClusterIdentity::load(const std::string& directory,
                                              const std::string& name) {
    AFD_TRY(check_host_name(name));
    const Files files = files_of(directory, name);
    AFD_ASSIGN(const Certificate ca, read_certificate(files.ca, files));
    AFD_ASSIGN(const Certificate certificate, read_certificate(files.certificate, files));
    AFD_ASSIGN(const PrivateKey key, read_key(files));
    ERR_clear_error();
    AFD_TRY(check_files(ca.get(), certificate.get(), key.get(), files));
    const std::string named = host_of(certificate.get());
    if (named != name) {
        return invalid_argument("{}: this certificate is for the host '{}'; `{}` makes one for {}",
                                with(files.certificate, named, files.command, name));
    }
    Settings settings(SSL_CTX_new(TLS_method()));
    if (settings == nullptr) return internal("TLS cannot be set up: {}", with(last_reason()));
    AFD_TRY(apply(settings.get(), ca.get(), certificate.get(), key.get()));
    ClusterIdentity identity(directory, name, std::move(settings));
    const ASN1_TIME* end = X509_get0_notAfter(certificate.get());
    const ASN1_TIME* ca_end = X509_get0_notAfter(ca.get());
    const bool is_of_ca = seconds_of(ca_end) < seconds_of(end);
    identity.expires_s_ = std::min(seconds_of(ca_end), seconds_of(end));
    identity.expires_how_ = fmt::format(
        "on {}; {}", date_of(is_of_ca ? ca_end : end), is_of_ca ? kNewCa : how_to_renew(files));
    identity.expires_file_ = is_of_ca ? files.ca : files.certificate;
    return identity;
}

Result<> ClusterIdentity::renew() {
    AFD_ASSIGN(ClusterIdentity renewed, load(directory_, name_));
    *this = std::move(renewed);
    return {};
}

std::string ClusterIdentity::expiry_text(int64_t now_s) const {
    constexpr int64_t kDayS = 86'400;
    const int64_t left_s = expires_s_ - now_s;
    if (left_s > kWarnDays * kDayS) return "";
    if (left_s <= 0) {
        return fmt::format("{}: this certificate has expired, {}", expires_file_, expires_how_);
    }
    const int64_t num_days = (left_s + kDayS - 1) / kDayS;
    return fmt::format("{}: this certificate expires within {}, {}; SIGHUP makes afdd read it",
                       expires_file_,
                       num_days == 1 ? "a day" : fmt::format("{} days", num_days),
                       expires_how_);
}

}  // namespace afd::daemon
