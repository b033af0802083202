// SPDX-License-Identifier: Apache-2.0
//
// The vocabulary from afdd to a worker. Oracle: the tokens; what the kernel lets anybody do.
#include "daemon/worker/vocabulary_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

namespace afd::daemon {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kTokens = {"", "a", "the", "\xe6\x97", "{\""};

UniqueFd made() {
    auto file = create_vocabulary_file("/afd-test-vocabulary", model::VocabularyTrie(kTokens));
    EXPECT_TRUE(file.ok()) << file.error().message;
    return std::move(file).value();
}

// A file that afdd did not make.
UniqueFd foreign(const std::string& bytes, int seals) {
    UniqueFd file(::memfd_create("foreign", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::write(file.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, seals), 0);
    return file;
}

TEST(VocabularyFile, HasTheTokensThatItWasMadeOf) {
    const UniqueFd file = made();
    const auto read = read_vocabulary_file(file.get(), "v");
    ASSERT_TRUE(read.ok()) << read.error().message;
    ASSERT_EQ(read.value()->vocab_size(), kTokens.size());
    for (uint32_t id = 0; id < kTokens.size(); ++id) {
        EXPECT_EQ(read.value()->bytes_of(id), kTokens[id]);
    }
}

// What is checked once must stay as it is: nobody may write, cut or lengthen it, its maker
// included.
TEST(VocabularyFile, NobodyCanChangeIt) {
    const UniqueFd file = made();
    EXPECT_EQ(::pwrite(file.get(), "x", 1, 0), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(::ftruncate(file.get(), 1), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_GROW), -1);
}

TEST(VocabularyFile, WhatCouldChangeOrIsNoVocabularyIsRefused) {
    const auto refusal = [](const UniqueFd& file) {
        const auto read = read_vocabulary_file(file.get(), "v");
        EXPECT_FALSE(read.ok());
        return read.ok() ? Error{} : read.error();
    };
    constexpr int kAll = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
    const Error open = refusal(foreign("x", F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
    EXPECT_EQ(open.code, Code::kPermissionDenied);
    EXPECT_THAT(open.message, HasSubstr("vocabulary v is no sealed memory file"));
    EXPECT_THAT(refusal(foreign("", kAll)).message, HasSubstr("vocabulary v is empty"));
    const Error bad = refusal(foreign(std::string(100, 'x'), kAll));
    EXPECT_EQ(bad.code, Code::kDataLoss);
    EXPECT_THAT(bad.message, HasSubstr("100 bytes, which its header contradicts"));
}

}  // namespace
}  // namespace afd::daemon
