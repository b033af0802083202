// SPDX-License-Identifier: Apache-2.0
//
// Goal: an identity is made of files that its peers will accept, and of no others; what is wrong
// with the others is said, with what mends it. Method: the files of the real afdctl, one of them
// spoiled. Oracle: the code and the words of the message.
#include "daemon/cluster/cluster_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/daemon/cluster/cluster_files.h"

namespace afd::daemon {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

std::string today(int64_t days) {
    const time_t time = std::time(nullptr) + days * ClusterFiles::kDay;
    tm parts{};
    ::gmtime_r(&time, &parts);
    std::array<char, 16> text{};
    return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d", &parts)};
}

// The error of loading node1.
Error error_of(const ClusterFiles& files) {
    const Result<ClusterIdentity> loaded = files.load("node1");
    EXPECT_FALSE(loaded.ok());
    return loaded.ok() ? Error{Code::kOk, ""} : loaded.error();
}

TEST(ClusterIdentity, IsOfTheHostThatWasAskedFor) {
    const ClusterFiles files({"node1", "a.b-2"});
    for (const char* name : {"leader", "node1", "a.b-2"}) {
        const Result<ClusterIdentity> loaded = files.load(name);
        ASSERT_TRUE(loaded.ok()) << loaded.error().message;
        EXPECT_EQ(loaded.value().name(), name);
    }
    ClusterIdentity identity = files.identity("node1");
    const ClusterIdentity moved = std::move(identity);
    EXPECT_EQ(moved.name(), "node1");
    EXPECT_NE(moved.settings(), nullptr);
}

TEST(ClusterIdentity, NamesTheMissingFileAndWhatMakesIt) {
    for (const char* missing : {"ca.pem", "node1.pem", "node1.key"}) {
        const ClusterFiles files;
        files.remove(missing);
        const Error error = error_of(files);
        EXPECT_EQ(error.code, Code::kNotFound);
        EXPECT_EQ(error.message,
                  files.path(missing) + ": no such file; `afdctl cluster init " + files.path() +
                      " --host node1` makes it");
    }
    // afdctl refuses `--host leader`, so that is not what the message may say.
    const ClusterFiles files;
    files.remove("leader.pem");
    EXPECT_THAT(files.load("leader").error().message,
                HasSubstr("`afdctl cluster init " + files.path() + "` makes it"));
}

// Goal: who has no key of the CA is not told to make another CA, whose certificates nobody takes.
TEST(ClusterIdentity, WithoutTheKeyOfTheCaTheFileIsToBeCopied) {
    for (const char* name : {"node1", "leader"}) {
        const ClusterFiles files;
        files.remove("ca.key");
        files.remove(name + std::string(".pem"));
        const Result<ClusterIdentity> loaded = files.load(name);
        ASSERT_FALSE(loaded.ok());
        EXPECT_THAT(loaded.error().message,
                    HasSubstr("no such file; copy it from the directory DIR that has ca.key; there "
                              "`afdctl cluster init DIR"));
    }
    // The files of one host, and it goes by another name.
    const ClusterFiles files;
    files.remove("ca.key");
    EXPECT_THAT(files.load("vm").error().message,
                EndsWith("makes it; or name this host by its files: --host-name node1"));
    const auto host = ClusterIdentity::load("/nonexistent", "node1");
    ASSERT_FALSE(host.ok());
    EXPECT_THAT(host.error().message, HasSubstr("copy it from the directory DIR"));
    const auto leader = ClusterIdentity::load("/nonexistent", "leader");
    ASSERT_FALSE(leader.ok());
    EXPECT_THAT(leader.error().message, HasSubstr("`afdctl cluster init /nonexistent` makes it"));
}

TEST(ClusterIdentity, SaysWhenItIsAboutToExpire) {
    const ClusterFiles files;
    files.issue("node1", "node1", -1, 40);
    const ClusterIdentity identity = files.identity("node1");
    const int64_t now_s = std::time(nullptr);
    EXPECT_NEAR(static_cast<double>(identity.expires_s()),
                static_cast<double>(now_s + 40 * ClusterFiles::kDay),
                60);
    EXPECT_EQ(identity.expiry_text(now_s), "");
    EXPECT_THAT(identity.expiry_text(now_s + 28 * ClusterFiles::kDay),
                AllOf(HasSubstr("node1.pem: this certificate expires within 12 days, "),
                      HasSubstr("on " + today(40)),
                      HasSubstr("remove it where ca.key is, run `afdctl cluster init")));
    EXPECT_THAT(identity.expiry_text(identity.expires_s() - 100),
                HasSubstr("this certificate expires within a day, on "));
    EXPECT_THAT(identity.expiry_text(now_s + 41 * ClusterFiles::kDay),
                HasSubstr("node1.pem: this certificate has expired, on " + today(40)));
}

// A file that is half copied does not take away what works.
TEST(ClusterIdentity, ReadsItsFilesAgain) {
    const ClusterFiles files;
    files.issue("node1", "node1", -1, 10);
    ClusterIdentity identity = files.identity("node1");
    const int64_t before_s = identity.expires_s();
    files.write("node1.pem", "-----BEGIN CERT");
    EXPECT_FALSE(identity.renew().ok());
    EXPECT_EQ(identity.expires_s(), before_s);
    EXPECT_NE(identity.settings(), nullptr);
    files.issue("node1", "node1", -1, 20);
    ASSERT_TRUE(identity.renew().ok());
    EXPECT_GT(identity.expires_s(), before_s + 9 * ClusterFiles::kDay);
}

TEST(ClusterIdentity, KeyThatOthersCanReadIsRefused) {
    const ClusterFiles files;
    for (const mode_t mode : {0640, 0604, 0620}) {
        ::chmod(files.path("node1.key").c_str(), mode);
        const Error error = error_of(files);
        EXPECT_EQ(error.code, Code::kPermissionDenied);
        EXPECT_THAT(error.message, HasSubstr("chmod 600 " + files.path("node1.key")));
    }
    ::chmod(files.path("node1.key").c_str(), 0400);
    EXPECT_TRUE(files.load("node1").ok());
}

TEST(ClusterIdentity, KeyOfAnotherCertificateIsRefused) {
    const ClusterFiles files;
    files.copy("leader.key", "node1.key");
    const Error error = error_of(files);
    EXPECT_EQ(error.code, Code::kInvalidArgument);
    EXPECT_THAT(error.message,
                AllOf(HasSubstr("node1.key: is not the key of"), HasSubstr("node1.pem")));
}

TEST(ClusterIdentity, CertificateOfAnotherCaIsRefused) {
    const ClusterFiles files;
    const ClusterFiles others;
    files.write("ca.pem", bytes_of(others.path("ca.pem")));
    const Error error = error_of(files);
    EXPECT_EQ(error.code, Code::kInvalidArgument);
    EXPECT_THAT(error.message, HasSubstr("is not signed by the CA of " + files.path("ca.pem")));
}

TEST(ClusterIdentity, CertificateOfAnotherHostIsRefused) {
    const ClusterFiles files({"node1", "node2"});
    files.copy("node2.pem", "node1.pem");
    files.copy("node2.key", "node1.key");
    const Error error = error_of(files);
    EXPECT_EQ(error.code, Code::kInvalidArgument);
    EXPECT_THAT(error.message, HasSubstr("this certificate is for the host 'node2'"));
}

TEST(ClusterIdentity, CertificateOutsideItsDatesIsRefused) {
    const ClusterFiles files;
    files.issue("node1", "node1", -10, -2);
    Error error = error_of(files);
    EXPECT_EQ(error.code, Code::kFailedPrecondition);
    EXPECT_THAT(error.message,
                AllOf(HasSubstr("node1.pem: this certificate has expired: it is valid from"),
                      HasSubstr(today(-10)),
                      HasSubstr(" to " + today(-2))));
    files.issue("node1", "node1", 2, 10);
    error = error_of(files);
    EXPECT_EQ(error.code, Code::kFailedPrecondition);
    EXPECT_THAT(error.message,
                AllOf(HasSubstr("is not valid yet: it is valid from " + today(2)),
                      HasSubstr("is the clock of this host right?")));
}

// A certificate of a host signs nothing, whoever has its key.
TEST(ClusterIdentity, AHostIsNoCa) {
    const ClusterFiles files;
    const ClusterFiles forged;
    // What the leader's key signs, in a directory where the leader's certificate is the CA.
    forged.write("ca.pem", bytes_of(files.path("leader.pem")));
    forged.write("ca.key", bytes_of(files.path("leader.key")));
    forged.issue("node1", "node1", -1, 1);
    const Error error = error_of(forged);
    EXPECT_EQ(error.code, Code::kInvalidArgument);
    EXPECT_THAT(error.message, HasSubstr("peers would refuse this certificate"));
}

TEST(ClusterIdentity, FilesThatAreNotPemAreRefused) {
    for (const char* name : {"ca.pem", "node1.pem", "node1.key"}) {
        for (const std::string& bytes : {std::string(), std::string(100'000, 'x')}) {
            const ClusterFiles files;
            files.write(name, bytes);
            const Error error = error_of(files);
            EXPECT_EQ(error.code, Code::kDataLoss);
            EXPECT_THAT(error.message, HasSubstr(files.path(name) + ": is no "));
        }
    }
}

TEST(ClusterIdentity, BadNamesAreRefusedBeforeAFileIsLookedFor) {
    const ClusterFiles files;
    for (const std::string& name :
         {std::string(), std::string("../x"), std::string("Node"), std::string(64, 'a')}) {
        const Result<ClusterIdentity> loaded = files.load(name);
        ASSERT_FALSE(loaded.ok());
        EXPECT_EQ(loaded.error().code, Code::kInvalidArgument);
        EXPECT_THAT(loaded.error().message, HasSubstr("is no name of a host"));
    }
}

}  // namespace
}  // namespace afd::daemon
