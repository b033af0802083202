// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "model/checkpoint/tensor_store.h"
#include "model/safetensors/safetensors_writer.h"
#include "tests/temporary_directory.h"

namespace afd::model {
namespace {

using ::testing::HasSubstr;

// A file with this header and so many zero bytes of data.
std::string file_bytes(const std::string& header, size_t data_bytes) {
    std::string bytes(8, '\0');
    for (size_t i = 0; i < 8; ++i) {
        bytes[i] = static_cast<char>(uint64_t{header.size()} >> (8 * i));
    }
    return bytes + header + std::string(data_bytes, '\0');
}

class SafetensorsTest : public ::testing::Test {
  protected:
    Result<SafetensorsFile> open(const std::string& bytes) {
        return SafetensorsFile::open(directory_.write("m.safetensors", bytes));
    }

    // The file is refused as damaged, and the message names it and says this.
    void expect_refused(const std::string& bytes, const std::string& message) {
        const auto file = open(bytes);
        ASSERT_FALSE(file.ok()) << message;
        EXPECT_EQ(file.error().code, Code::kDataLoss);
        EXPECT_THAT(file.error().message, HasSubstr("m.safetensors: "));
        EXPECT_THAT(file.error().message, HasSubstr(message));
    }

    test::TemporaryDirectory directory_;
};

constexpr const char* kOneTensor = R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})";

TEST_F(SafetensorsTest, ReadsTensorsSortedByOffset) {
    const auto file = open(file_bytes(
        R"({"b":{"dtype":"BF16","shape":[3],"data_offsets":[4,10]},)"
        R"("__metadata__":{"format":"pt"},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
        10));
    ASSERT_TRUE(file.ok()) << file.error().message;
    ASSERT_EQ(file.value().tensors().size(), 2u);
    EXPECT_EQ(file.value().tensors()[0].name, "a");
    EXPECT_EQ(file.value().tensors()[1].name, "b");
    EXPECT_EQ(file.value().tensors()[1].end - file.value().tensors()[1].begin, 6u);
}

TEST_F(SafetensorsTest, AcceptsScalarsEmptyTensorsAndTrailingSpaces) {
    EXPECT_TRUE(open(file_bytes("{}", 0)).ok());
    EXPECT_TRUE(open(file_bytes(std::string(kOneTensor) + "   ", 16)).ok());
    EXPECT_TRUE(
        open(file_bytes(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4)).ok());
    EXPECT_TRUE(
        open(file_bytes(R"({"a":{"dtype":"F32","shape":[2,0],"data_offsets":[0,0]}})", 0)).ok());
    EXPECT_TRUE(
        open(file_bytes(R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", 1)).ok());
}

TEST_F(SafetensorsTest, RefusesFilesThatAreTooShort) {
    expect_refused("", "0 bytes are too few");
    expect_refused("1234567", "7 bytes are too few");
    expect_refused(file_bytes(kOneTensor, 16).substr(0, 20), "a header of 57 bytes is announced");
    expect_refused(file_bytes(kOneTensor, 15), "(truncated file)");
    expect_refused(file_bytes(kOneTensor, 17), "(trailing bytes)");
}

TEST_F(SafetensorsTest, RefusesHeaderLengthsBeyondTheLimitAndTheFile) {
    expect_refused(std::string(8, '\xff') + "{}",
                   "a header of 18446744073709551615 bytes is announced in a file of 10");
    std::string large = file_bytes("{}", 0);
    large[4] = 1;  // 4 GiB and more.
    expect_refused(large, "a header of 4294967298 bytes is announced");
    // Files of other programs, whose first bytes are no such number.
    expect_refused(std::string("PK\x03\x04\x14\0\0\0\0\0", 10),
                   ": this is a zip archive, as .npz and .pt files are, no safetensors file");
    expect_refused("\x93NUMPY\x01" + std::string(9, '\0'),
                   ": this is a NumPy array (.npy), no safetensors file");
}

// Goal: what was fetched in place of a file is named, with what to do.
TEST_F(SafetensorsTest, NamesWhatIsFetchedInPlaceOfAFile) {
    expect_refused(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 4096\n",
        ": this is a pointer of Git LFS, no safetensors file; fetch the file itself with git lfs "
        "pull");
    for (const char* page : {"<!DOCTYPE html><html>", "<!doctype html>", "<html lang=\"en\">"}) {
        expect_refused(page,
                       ": this is an HTML page, no safetensors file: a server gave it in place of "
                       "the file. Fetch the file again");
    }
}

TEST_F(SafetensorsTest, RefusesHeadersThatAreNotOneJsonObject) {
    expect_refused(file_bytes("", 0), "does not begin with '{'");
    expect_refused(file_bytes(" {}", 0), "does not begin with '{'");
    expect_refused(file_bytes("[]", 0), "does not begin with '{'");
    expect_refused(file_bytes("{\"a\":", 0), "not valid JSON near byte");
    expect_refused(file_bytes("{} x", 0), "not valid JSON near byte");
    expect_refused(file_bytes("{\"\xff\xfe\":1}", 0), "not valid JSON near byte");
}

TEST_F(SafetensorsTest, RefusesAKeyThatStandsTwice) {
    expect_refused(file_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                              R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                              1),
                   "the key \"a\" stands twice");
    expect_refused(file_bytes(R"({"a":{"dtype":"U8","dtype":"I8"}})", 0),
                   "the key \"dtype\" stands twice");
}

TEST_F(SafetensorsTest, RefusesOverlapsAndHoles) {
    const char* two = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                      R"("b":{"dtype":"U8","shape":[4],"data_offsets":[%,8]}})";
    const auto with = [two](const char* begin) {
        std::string text = two;
        return text.replace(text.find('%'), 1, begin);
    };
    expect_refused(file_bytes(with("2"), 8), "tensor b: its data begins at 2");
    expect_refused(file_bytes(with("2"), 8), "(overlap)");
    expect_refused(file_bytes(with("5"), 8), "(hole)");
    // Every tensor over the same bytes: a header that would promise far more than the file has.
    expect_refused(file_bytes(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                              R"("b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
                              8),
                   "(overlap)");
    expect_refused(file_bytes(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3),
                   "its data begins at 1, the tensor before ends at 0 (hole)");
}

struct BadEntry {
    const char* entry;
    const char* message;
};

class BadEntries : public SafetensorsTest, public ::testing::WithParamInterface<BadEntry> {};

TEST_P(BadEntries, NameTheTensorAndWhatIsWrong) {
    expect_refused(file_bytes(std::string(R"({"w":)") + GetParam().entry + "}", 4),
                   std::string("tensor w: ") + GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Safetensors,
    BadEntries,
    ::testing::Values(
        BadEntry{"7", "its entry is not an object"},
        BadEntry{R"({"shape":[1],"data_offsets":[0,4]})", "dtype is missing or not a string"},
        BadEntry{R"({"dtype":"F33","shape":[1],"data_offsets":[0,4]})", "unknown dtype \"F33\""},
        BadEntry{R"({"dtype":"F32","data_offsets":[0,4]})", "shape is missing or not an array"},
        BadEntry{R"({"dtype":"F32","shape":[1]})", "data_offsets is missing or not an array"},
        BadEntry{R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})", "shape holds -1"},
        BadEntry{R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})", "shape holds 1.0"},
        BadEntry{R"({"dtype":"F32","shape":[1],"data_offsets":[0]})",
                 "data_offsets are not [begin, end]"},
        BadEntry{R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})",
                 "data_offsets are not [begin, end]"},
        BadEntry{R"({"dtype":"F32","shape":[1],"data_offsets":[0,281474976710657]})",
                 "data_offsets holds 281474976710657"},
        BadEntry{R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})",
                 "F32 [2] needs 8 bytes, data_offsets give 4"},
        BadEntry{R"({"dtype":"F4","shape":[7],"data_offsets":[0,4]})",
                 "F4 [7] is not a whole number of bytes"},
        BadEntry{R"({"dtype":"U8","shape":[281474976710656,281474976710656],)"
                 R"("data_offsets":[0,4]})",
                 "U8 [281474976710656, 281474976710656] is not a whole number of bytes below 2^64"},
        BadEntry{R"({"dtype":"U8","shape":[1,1,1,1,1,1,1,1,4],"data_offsets":[0,4]})",
                 "its shape has 9 dimensions; at most 8"}));

TEST_F(SafetensorsTest, RefusesMetadataThatIsNotText) {
    expect_refused(file_bytes(R"({"__metadata__":{"a":1}})", 0),
                   "__metadata__ is not an object of strings");
    expect_refused(file_bytes(R"({"__metadata__":"a"})", 0),
                   "__metadata__ is not an object of strings");
}

TEST_F(SafetensorsTest, RefusesVeryLongNames) {
    const std::string name(2000, 'n');
    expect_refused(
        file_bytes("{\"" + name + R"(":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4),
        "its name has 2000 bytes; at most 1024");
}

TEST_F(SafetensorsTest, RefusesWhatIsNoRegularFile) {
    const auto missing = SafetensorsFile::open(directory_.path() + "/absent");
    ASSERT_FALSE(missing.ok());
    EXPECT_EQ(missing.error().code, Code::kNotFound);
    const auto folder = SafetensorsFile::open(directory_.path());
    ASSERT_FALSE(folder.ok());
    EXPECT_THAT(folder.error().message, HasSubstr("not a regular file"));
}

TEST_F(SafetensorsTest, ReportsAFileThatBecomesShorter) {
    const auto file = open(file_bytes(kOneTensor, 16));
    ASSERT_TRUE(file.ok());
    std::filesystem::resize_file(file.value().path(), 70);
    std::array<std::byte, 16> out;
    const auto read = file.value().read(file.value().tensors()[0].begin, out);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, Code::kDataLoss);
    EXPECT_THAT(read.error().message, HasSubstr("became shorter"));
}

class TensorStoreTest : public ::testing::Test {
  protected:
    template <typename T>
    static TensorToWrite tensor(const char* name,
                                StorageType type,
                                std::vector<uint64_t> shape,
                                const std::vector<T>& values) {
        return {name, type, std::move(shape), std::as_bytes(std::span(values))};
    }

    void write(const char* file, const std::vector<TensorToWrite>& tensors) {
        const auto result = write_safetensors(directory_.path() + "/" + file, tensors);
        ASSERT_TRUE(result.ok()) << result.error().message;
    }

    Error open_error() {
        const auto store = TensorStore::open(directory_.path());
        EXPECT_FALSE(store.ok());
        return store.ok() ? Error{} : store.error();
    }

    test::TemporaryDirectory directory_;
    const std::vector<float> floats_ = {1.0f, -2.5f, 3.00390625f, 1e-3f};
    const std::vector<ops::Bf16> halves_ = {ops::from_float(0.5f), ops::from_float(-8.0f)};
};

TEST_F(TensorStoreTest, ReadsBf16AsStoredAndRoundsF32) {
    write("model.safetensors",
          {tensor("f", StorageType::kF32, {2, 2}, floats_),
           tensor("h", StorageType::kBf16, {2}, halves_)});
    const auto store = TensorStore::open(directory_.path());
    ASSERT_TRUE(store.ok()) << store.error().message;
    const std::array<uint64_t, 2> square = {2, 2};
    const std::array<uint64_t, 1> two = {2};
    EXPECT_EQ(store.value().read_bf16("h", two).value(), halves_);
    EXPECT_EQ(store.value().read_f32("h", two).value(), (std::vector<float>{0.5f, -8.0f}));
    EXPECT_EQ(store.value().read_f32("f", square).value(), floats_);
    const auto rounded = store.value().read_bf16("f", square).value();
    for (size_t i = 0; i < floats_.size(); ++i) {
        EXPECT_EQ(rounded[i], ops::from_float(floats_[i])) << i;
    }
    const auto second = store.value().read_bf16_slice("f", square, 1, 1).value();
    EXPECT_EQ(second, std::vector<ops::Bf16>(rounded.begin() + 2, rounded.end()));
}

// Goal: every half is widened exactly and rounds once to bf16, half to even. Oracle: a table.
TEST_F(TensorStoreTest, WidensF16AndRoundsItToBf16) {
    const std::vector<uint16_t> bits = {0x3e00, 0x0001, 0x7bff, 0xbc04, 0x3c0c, 0x8000};
    const std::vector<float> exact = {1.5f, 0x1p-24f, 65504.0f, -1.00390625f, 1.01171875f, -0.0f};
    const std::vector<float> rounded = {1.5f, 0x1p-24f, 65536.0f, -1.0f, 1.015625f, -0.0f};
    write("model.safetensors", {tensor("half", StorageType::kF16, {3, 2}, bits)});
    const auto store = TensorStore::open(directory_.path());
    ASSERT_TRUE(store.ok()) << store.error().message;
    const std::array<uint64_t, 2> shape = {3, 2};
    EXPECT_EQ(store.value().read_f32("half", shape).value(), exact);
    std::vector<ops::Bf16> expected;
    for (const float value : rounded) {
        expected.push_back({static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16)});
    }
    EXPECT_EQ(store.value().read_bf16("half", shape).value(), expected);
    const auto last = store.value().read_bf16_slice("half", shape, 2, 1).value();
    EXPECT_EQ(last, std::vector<ops::Bf16>(expected.end() - 2, expected.end()));
}

TEST_F(TensorStoreTest, NamesTensorExpectedAndFoundShape) {
    write("model.safetensors", {tensor("f", StorageType::kF32, {2, 2}, floats_)});
    const auto store = TensorStore::open(directory_.path());
    const std::array<uint64_t, 2> wanted = {4, 1};
    const auto read = store.value().read_bf16("f", wanted);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, Code::kInvalidArgument);
    EXPECT_EQ(read.error().message,
              directory_.path() +
                  "/model.safetensors: tensor f: expected shape [4, 1], found [2, 2]; config.json "
                  "and the weights disagree");
    const auto missing = store.value().read_bf16("g", wanted);
    ASSERT_FALSE(missing.ok());
    EXPECT_EQ(missing.error().code, Code::kNotFound);
    EXPECT_THAT(missing.error().message, HasSubstr("tensor g [4, 1] is missing"));
}

TEST_F(TensorStoreTest, RefusesOtherElementTypes) {
    const std::vector<uint8_t> bytes = {1, 2};
    write("model.safetensors", {tensor("q", StorageType::kF8E5M2, {2}, bytes)});
    const std::array<uint64_t, 1> two = {2};
    const auto read = TensorStore::open(directory_.path()).value().read_bf16("q", two);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, Code::kUnimplemented);
    EXPECT_THAT(read.error().message, HasSubstr("dtype is F8_E5M2; supported: BF16, F16, F32"));
}

TEST_F(TensorStoreTest, FindsTensorsInShards) {
    write("one.safetensors", {tensor("f", StorageType::kF32, {4}, floats_)});
    write("two.safetensors", {tensor("h", StorageType::kBf16, {2}, halves_)});
    directory_.write("model.safetensors.index.json",
                     R"({"metadata":{"total_size":20},)"
                     R"("weight_map":{"f":"one.safetensors","h":"two.safetensors"}})");
    const auto store = TensorStore::open(directory_.path());
    ASSERT_TRUE(store.ok()) << store.error().message;
    const std::array<uint64_t, 1> two = {2};
    EXPECT_EQ(store.value().read_bf16("h", two).value(), halves_);
    EXPECT_EQ(store.value().list().size(), 2u);
}

TEST_F(TensorStoreTest, RefusesAnIndexThatDoesNotMatchItsShards) {
    write("one.safetensors", {tensor("f", StorageType::kF32, {4}, floats_)});
    const std::string index = "model.safetensors.index.json";
    directory_.write(index, R"({"weight_map":{"f":"one.safetensors","g":"one.safetensors"}})");
    EXPECT_THAT(open_error().message, HasSubstr("tensor g is not in one.safetensors"));
    directory_.write(index, R"({"weight_map":{"f":"absent.safetensors"}})");
    EXPECT_EQ(open_error().code, Code::kNotFound);
    EXPECT_EQ(
        open_error().message,
        directory_.path("absent.safetensors") +
            ": No such file or directory; model.safetensors.index.json names it. The download "
            "may be incomplete: fetch the model again");
    write("two.safetensors", {tensor("f", StorageType::kF32, {4}, floats_)});
    directory_.write(index, R"({"weight_map":{"f":"one.safetensors","g":"two.safetensors"}})");
    EXPECT_THAT(open_error().message, HasSubstr("tensor f is also in "));
    directory_.write(index, R"({"metadata":{}})");
    EXPECT_THAT(open_error().message, HasSubstr("weight_map is missing or not an object"));
}

TEST_F(TensorStoreTest, RefusesShardsOutsideTheDirectory) {
    for (const char* name : {"../x.safetensors", "/etc/passwd", "a/b", "..", ""}) {
        directory_.write("model.safetensors.index.json",
                         std::string(R"({"weight_map":{"f":")") + name + "\"}}");
        const Error error = open_error();
        EXPECT_EQ(error.code, Code::kDataLoss) << name;
        EXPECT_THAT(error.message, HasSubstr("only a file name of the same directory")) << name;
    }
}

TEST_F(TensorStoreTest, SaysWhatTheDirectoryHoldsWhenWeightsAreMissing) {
    directory_.write("pytorch_model.bin", "x");
    const Error error = open_error();
    EXPECT_EQ(error.code, Code::kNotFound);
    EXPECT_THAT(error.message, HasSubstr("neither model.safetensors nor"));
    EXPECT_THAT(error.message, HasSubstr("the directory holds pytorch_model.bin"));
}

}  // namespace
}  // namespace afd::model
