// SPDX-License-Identifier: Apache-2.0
//
// `afdctl cluster init`, run as a program.
//
// Goal: it makes what is missing, changes nothing that is there, and leaves no key where others can
// read it. Method: runs after each other over one directory, some of them after a file was spoiled.
// Oracle: the bytes and modes of all files, the certificates as ClusterIdentity reads them, the
// words and exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/daemon/cluster/cluster_files.h"

namespace afd::daemon {
namespace {

using afd::test::ProgramResult;
using afd::test::TemporaryDirectory;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::map<std::string, std::string> all_bytes(const std::string& directory) {
    std::map<std::string, std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
        found[entry.path().filename()] = bytes_of(entry.path());
    }
    return found;
}

mode_t mode_of(const std::string& path) {
    struct stat about {};
    EXPECT_EQ(::stat(path.c_str(), &about), 0) << path;
    return about.st_mode & 0777;
}

void expect_refused(const ProgramResult& result, int exit_code, const std::string& words) {
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(words));
    EXPECT_EQ(result.out, "");
}

client::Validity validity_of(const std::string& path) {
    const auto parsed = client::Certificate::parse(bytes_of(path));
    EXPECT_TRUE(parsed.ok()) << path;
    return parsed.ok() ? parsed.value().validity() : client::Validity{};
}

TEST(ClusterInit, MakesACaAndCertificatesThatHostsCanUse) {
    const TemporaryDirectory temporary;
    const std::string directory = temporary.path("certs");
    const ProgramResult result = cluster_init(directory, {"--host", "node1", "--host", "node2"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(mode_of(directory), 0700U);
    const std::map<std::string, std::string> made = all_bytes(directory);
    EXPECT_EQ(made.size(), 8U) << "a draft was left behind";
    for (const char* name : {"ca", "leader", "node1", "node2"}) {
        EXPECT_EQ(mode_of(directory + "/" + name + ".key"), 0600U) << name;
        EXPECT_THAT(made.at(std::string(name) + ".pem"), HasSubstr("BEGIN CERTIFICATE"));
        EXPECT_THAT(result.out,
                    HasSubstr("made " + directory + "/" + name + ".pem and " + name + ".key"));
    }
    for (const char* name : {"leader", "node1", "node2"}) {
        const Result<ClusterIdentity> loaded = ClusterIdentity::load(directory, name);
        EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    }
    EXPECT_THAT(result.out,
                AllOf(HasSubstr("node1: " + directory + "/ca.pem " + directory + "/node1.pem " +
                                directory + "/node1.key\n"),
                      HasSubstr("ca.key stays here"),
                      Not(HasSubstr("leader: "))));
}

TEST(ClusterInit, DatesAreThoseThatWereAskedFor) {
    constexpr int64_t kHour = 3600;
    const ClusterFiles files({"node1"});
    const int64_t now = std::time(nullptr);
    const client::Validity by_default = validity_of(files.path("node1.pem"));
    EXPECT_NEAR(static_cast<double>(by_default.from_s), static_cast<double>(now - 300), kHour);
    EXPECT_LE(by_default.from_s, now - 300);
    EXPECT_NEAR(static_cast<double>(by_default.until_s),
                static_cast<double>(now + 825 * ClusterFiles::kDay),
                kHour);
    const client::Validity ca = validity_of(files.path("ca.pem"));
    EXPECT_NEAR(static_cast<double>(ca.until_s),
                static_cast<double>(now + 3653 * ClusterFiles::kDay),
                kHour);
    ASSERT_EQ(cluster_init(files.path(), {"--host", "short", "--days", "3"}).exit_code, 0);
    EXPECT_NEAR(static_cast<double>(validity_of(files.path("short.pem")).until_s),
                static_cast<double>(now + 3 * ClusterFiles::kDay),
                kHour);
    // None outlives its CA.
    ASSERT_EQ(cluster_init(files.path(), {"--host", "long", "--days", "36500"}).exit_code, 0);
    EXPECT_EQ(validity_of(files.path("long.pem")).until_s, ca.until_s);
}

TEST(ClusterInit, ASecondRunAddsAHostAndChangesNothingElse) {
    const ClusterFiles files({"node1"});
    const std::map<std::string, std::string> before = all_bytes(files.path());
    const ProgramResult result =
        cluster_init(files.path() + "/", {"--host", "node1", "--host", "node2", "--host", "node2"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    std::map<std::string, std::string> after = all_bytes(files.path());
    EXPECT_EQ(after.size(), before.size() + 2);
    for (const auto& [name, bytes] : before) EXPECT_EQ(after[name], bytes) << name;
    EXPECT_THAT(result.out,
                AllOf(HasSubstr("kept " + files.path("ca.pem")),
                      HasSubstr("kept " + files.path("leader.pem")),
                      HasSubstr("kept " + files.path("node1.pem")),
                      HasSubstr("made " + files.path("node2.pem"))));
    EXPECT_TRUE(files.load("node2").ok());
    EXPECT_TRUE(files.load("node1").ok());
}

// What an interrupted run leaves, and how a certificate is renewed: a key alone keeps its bytes.
TEST(ClusterInit, AKeyAloneGetsACertificate) {
    const ClusterFiles files({"node1"});
    const std::string key = bytes_of(files.path("node1.key"));
    files.issue("node1", "node1", -10, -1);
    EXPECT_THAT(cluster_init(files.path(), {"--host", "node1"}).out,
                HasSubstr("over; remove the .pem and run this again"));
    files.write("node1.key", key);
    files.remove("node1.pem");
    const ProgramResult result = cluster_init(files.path(), {"--host", "node1"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(bytes_of(files.path("node1.key")), key);
    EXPECT_TRUE(files.load("node1").ok());
}

TEST(ClusterInit, ACaKeyAloneGetsItsCertificate) {
    const TemporaryDirectory temporary;
    const std::string directory = temporary.path("certs");
    ASSERT_EQ(cluster_init(directory, {}).exit_code, 0);
    const std::string key = bytes_of(directory + "/ca.key");
    for (const char* name : {"/ca.pem", "/leader.pem", "/leader.key"}) {
        std::filesystem::remove(directory + name);
    }
    ASSERT_EQ(cluster_init(directory, {}).exit_code, 0);
    EXPECT_EQ(bytes_of(directory + "/ca.key"), key);
    EXPECT_TRUE(ClusterIdentity::load(directory, "leader").ok());
}

TEST(ClusterInit, NamesThatAreNoneOfAHostAreRefusedBeforeAnythingIsMade) {
    const TemporaryDirectory temporary;
    const std::string directory = temporary.path("certs");
    for (const char* name : {"leader", "local"}) {
        expect_refused(
            cluster_init(directory, {"--host", name}), 2, "that is the host of the afdd");
    }
    for (const std::string& name : {std::string("../x"),
                                    std::string("ca"),
                                    std::string("Node"),
                                    std::string("a b"),
                                    std::string("a/b"),
                                    std::string(),
                                    std::string(64, 'a')}) {
        expect_refused(cluster_init(directory, {"--host", "node1", "--host=" + name}),
                       2,
                       "--host '" + name + "' is no name of a host");
    }
    EXPECT_FALSE(std::filesystem::exists(directory));
    EXPECT_EQ(cluster_init(directory, {"--host", std::string(63, 'a')}).exit_code, 0);
}

TEST(ClusterInit, DaysThatAreNoneAreRefused) {
    const TemporaryDirectory temporary;
    for (const char* days : {"0", "-1", "36501", "many"}) {
        expect_refused(cluster_init(temporary.path("certs"), {"--days", days}), 2, "--days");
    }
}

TEST(ClusterInit, ADirectoryThatOthersMayEnterIsRefused) {
    const ClusterFiles files;
    for (const mode_t mode : {0750, 0701}) {
        ::chmod(files.path().c_str(), mode);
        expect_refused(cluster_init(files.path(), {}), 1, "chmod 700 " + files.path());
    }
    const TemporaryDirectory temporary;
    const std::string file = temporary.write("file", "x");
    expect_refused(cluster_init(file, {}), 1, "is no directory");
    expect_refused(cluster_init(temporary.path("a/b"), {}), 1, "make the ones above it first");
}

TEST(ClusterInit, ACaWithoutItsKeyMakesNothing) {
    const ClusterFiles files;
    files.remove("ca.key");
    const std::map<std::string, std::string> before = all_bytes(files.path());
    expect_refused(cluster_init(files.path(), {"--host", "node2"}), 1, "is missing beside ca.pem");
    EXPECT_EQ(all_bytes(files.path()), before);
    files.copy("leader.key", "ca.key");
    expect_refused(cluster_init(files.path(), {"--host", "node2"}), 1, "ca.key: is not the key of");
}

TEST(ClusterInit, AnExpiredCaMakesNothing) {
    const ClusterFiles files;
    const auto key = client::PrivateKey::parse(bytes_of(files.path("ca.key")));
    const int64_t now = std::time(nullptr);
    const auto old = client::Certificate::of_authority(
        key.value(), {now - 10 * ClusterFiles::kDay, now - ClusterFiles::kDay});
    files.write("ca.pem", old.value().pem());
    expect_refused(cluster_init(files.path(), {"--host", "node2"}), 1, "this CA has expired");
}

TEST(ClusterInit, FilesThatAreSpoiledAreNamed) {
    for (const char* name : {"ca.pem", "ca.key", "leader.pem"}) {
        const ClusterFiles files;
        files.write(name, "spoiled");
        const ProgramResult result = cluster_init(files.path(), {});
        EXPECT_EQ(result.exit_code, 1);
        EXPECT_THAT(result.err, HasSubstr(files.path(name) + ": is no "));
        EXPECT_EQ(bytes_of(files.path(name)), "spoiled");
    }
    const ClusterFiles files;
    files.remove("node1.key");
    const ProgramResult result = cluster_init(files.path(), {"--host", "node1"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("node1.key: is missing beside"));
}

// Goal: files that no host can join with are not called kept.
TEST(ClusterInit, FilesThatDoNotBelongTogetherAreNamed) {
    const std::vector<std::string> hosts = {"--host", "node1", "--host", "node2"};
    const ClusterFiles files({"node1", "node2"});
    files.copy("node1.key", "kept.key");
    files.copy("node2.key", "node1.key");
    files.copy("kept.key", "node2.key");
    ProgramResult result = cluster_init(files.path(), hosts);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err,
                HasSubstr(files.path("node1.key") + ": is not the key of " +
                          files.path("node1.pem") + "; bring back the right one"));
    files.copy("node2.pem", "node1.pem");
    result = cluster_init(files.path(), hosts);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err,
                HasSubstr(files.path("node1.pem") + ": is the certificate of the host 'node2'"));

    const ClusterFiles others({"node1"});
    files.write("node1.pem", bytes_of(others.path("node1.pem")));
    files.write("node1.key", bytes_of(others.path("node1.key")));
    result = cluster_init(files.path(), hosts);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err,
                HasSubstr(files.path("node1.pem") + ": is not signed by the CA of this directory"));
}

TEST(ClusterInit, JsonSaysTheSame) {
    const ClusterFiles files({"node1"});
    const ProgramResult result = cluster_init(files.path(), {"--host", "node2", "--json"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const nlohmann::json object = nlohmann::json::parse(result.out);
    EXPECT_EQ(object["directory"], files.path());
    EXPECT_EQ(object["ca"]["is_new"], false);
    ASSERT_EQ(object["hosts"].size(), 2U);
    EXPECT_EQ(object["hosts"][0]["name"], "leader");
    EXPECT_EQ(object["hosts"][1]["name"], "node2");
    EXPECT_EQ(object["hosts"][1]["is_new"], true);
    EXPECT_EQ(object["hosts"][1]["files"], nlohmann::json({"ca.pem", "node2.pem", "node2.key"}));
    EXPECT_EQ(object["hosts"][1]["valid_until"].get<std::string>().size(), 10U);
}

TEST(ClusterInit, TheCommandNeedsToBeWhole) {
    const ProgramResult result = afd::test::run_program({AFDCTL, "cluster"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("cluster: give init and a directory"));
    EXPECT_THAT(afd::test::run_program({AFDCTL, "cluster", "inti", "certs"}).err,
                HasSubstr("'inti'"));
    EXPECT_EQ(afd::test::run_program({AFDCTL, "cluster", "init"}).exit_code, 2);
    EXPECT_THAT(afd::test::run_program({AFDCTL, "cluster", "init", "--help"}).out,
                HasSubstr("Example: afdctl cluster init"));
}

}  // namespace
}  // namespace afd::daemon
