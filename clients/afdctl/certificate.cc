// SPDX-License-Identifier: Apache-2.0
#include "clients/afdctl/certificate.h"

#include <openssl/asn1.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <ctime>

namespace afd::client {
namespace {

constexpr int kSerialBits = 128;

afd::Error cannot_make() {
    const char* reason = ERR_reason_error_string(ERR_peek_last_error());
    return {Code::kInternal,
            std::string("cannot make a certificate: ") + (reason != nullptr ? reason : "unknown")};
}

bool set_random_serial(X509* certificate) {
    BIGNUM* serial = BN_new();
    const bool is_set = serial != nullptr &&
                        BN_rand(serial, kSerialBits, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) &&
                        BN_to_ASN1_INTEGER(serial, X509_get_serialNumber(certificate)) != nullptr;
    BN_free(serial);
    return is_set;
}

bool set_subject(X509* certificate, const std::string& name) {
    return X509_NAME_add_entry_by_NID(X509_get_subject_name(certificate),
                                      NID_commonName,
                                      MBSTRING_UTF8,
                                      reinterpret_cast<const unsigned char*>(name.data()),
                                      static_cast<int>(name.size()),
                                      -1,
                                      0) == 1;
}

int64_t seconds_of(const ASN1_TIME* time) {
    tm parts{};
    return ASN1_TIME_to_tm(time, &parts) == 1 ? ::timegm(&parts) : 0;
}

}  // namespace

void Certificate::Free::operator()(x509_st* certificate) const {
    X509_free(certificate);
}

Result<Certificate> Certificate::draft(const std::string& name,
                                       const PrivateKey& key,
                                       Validity validity) {
    ERR_clear_error();
    Certificate made(X509_new());
    X509* certificate = made.certificate_.get();
    const bool is_made =
        certificate != nullptr && X509_set_version(certificate, X509_VERSION_3) == 1 &&
        set_random_serial(certificate) && set_subject(certificate, name) &&
        ASN1_TIME_set(X509_getm_notBefore(certificate), validity.from_s) != nullptr &&
        ASN1_TIME_set(X509_getm_notAfter(certificate), validity.until_s) != nullptr &&
        X509_set_pubkey(certificate, key.get()) == 1;
    if (!is_made) return cannot_make();
    return made;
}

bool Certificate::add_extension(const Certificate& issuer, int kind, const char* value) {
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer.certificate_.get(), certificate_.get(), nullptr, nullptr, 0);
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value);
    const bool is_added =
        extension != nullptr && X509_add_ext(certificate_.get(), extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return is_added;
}

Result<> Certificate::sign(const Certificate& issuer, const PrivateKey& key) {
    const bool is_signed =
        X509_set_issuer_name(certificate_.get(),
                             X509_get_subject_name(issuer.certificate_.get())) == 1 &&
        X509_sign(certificate_.get(), key.get(), EVP_sha256()) != 0;
    if (!is_signed) return cannot_make();
    return {};
}

Result<Certificate> Certificate::of_authority(const PrivateKey& key, Validity validity) {
    AFD_ASSIGN(Certificate made, draft("afd cluster", key, validity));
    const bool is_extended =
        made.add_extension(made, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
        made.add_extension(made, NID_key_usage, "critical,keyCertSign") &&
        made.add_extension(made, NID_subject_key_identifier, "hash");
    if (!is_extended) return cannot_make();
    AFD_TRY(made.sign(made, key));
    return made;
}

Result<Certificate> Certificate::of_host(const std::string& name,
                                         const PrivateKey& key,
                                         Validity validity,
                                         const Certificate& authority,
                                         const PrivateKey& authority_key) {
    AFD_ASSIGN(Certificate made, draft(name, key, validity));
    const bool is_extended =
        made.add_extension(authority, NID_basic_constraints, "critical,CA:FALSE") &&
        made.add_extension(authority, NID_key_usage, "critical,digitalSignature") &&
        made.add_extension(authority, NID_ext_key_usage, "clientAuth,serverAuth") &&
        made.add_extension(authority, NID_subject_key_identifier, "hash") &&
        made.add_extension(authority, NID_authority_key_identifier, "keyid:always");
    if (!is_extended) return cannot_make();
    AFD_TRY(made.sign(authority, authority_key));
    return made;
}

Result<Certificate> Certificate::parse(const std::string& pem) {
    BIO* memory = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
    Certificate parsed(PEM_read_bio_X509(memory, nullptr, nullptr, nullptr));
    BIO_free(memory);
    if (parsed.certificate_ == nullptr) {
        return afd::Error{Code::kDataLoss, "is no certificate in PEM form"};
    }
    return parsed;
}

std::string Certificate::pem() const {
    BIO* memory = BIO_new(BIO_s_mem());
    AFD_ASSERT(PEM_write_bio_X509(memory, certificate_.get()) == 1,
               "a certificate cannot be written as PEM");
    char* text = nullptr;
    const long size = BIO_get_mem_data(memory, &text);
    std::string pem(text, static_cast<size_t>(size));
    BIO_free(memory);
    return pem;
}

Validity Certificate::validity() const {
    return {seconds_of(X509_get0_notBefore(certificate_.get())),
            seconds_of(X509_get0_notAfter(certificate_.get()))};
}

std::string Certificate::name() const {
    const X509_NAME* const subject = X509_get_subject_name(certificate_.get());
    const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    if (at < 0) return "";
    unsigned char* text = nullptr;
    const int size =
        ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
    if (size < 0) return "";
    std::string name(reinterpret_cast<const char*>(text), static_cast<size_t>(size));
    OPENSSL_free(text);
    return name;
}

bool Certificate::is_signed_by(const Certificate& authority) const {
    const bool is_signed =
        X509_verify(certificate_.get(), X509_get0_pubkey(authority.certificate_.get())) == 1;
    ERR_clear_error();
    return is_signed;
}

// An unlucky comparison leaves an error in the library's list, which nobody shall find later.
bool Certificate::is_of(const PrivateKey& key) const {
    const bool matches = X509_check_private_key(certificate_.get(), key.get()) == 1;
    ERR_clear_error();
    return matches;
}

}  // namespace afd::client
