// SPDX-License-Identifier: Apache-2.0
#pragma once

// OperatorInput: a call of one operator, as the bytes of an input say. In the order of its record:
// 9 bytes of each attribute, a kind and a value; 14 of each tensor that is read: how often it is
// given, dtype, rank, pattern, four extents, and how many of its bytes are the input's own; behind
// all of them these bytes. make_operator_seeds.py writes the same.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "calls/operator_call.h"
#include "tests/fuzz/fuzz_input.h"

namespace afd::fuzz {

// Memory of exactly this size, so that the sanitizer sees the byte behind it.
class ExactBytes {
  public:
    ExactBytes() = default;
    ExactBytes(size_t size, size_t alignment) : size_(size) {
        void* made = nullptr;
        AFD_ASSERT(::posix_memalign(&made, alignment, std::max<size_t>(size, 1)) == 0, "no memory");
        data_.reset(static_cast<std::byte*>(made));
        std::memset(made, kFresh, size);
    }
    std::span<std::byte> span() const { return {data_.get(), size_}; }
    std::string copy() const { return {reinterpret_cast<const char*>(data_.get()), size_}; }

    static constexpr int kFresh = 0xa5;

  private:
    struct Free {
        void operator()(std::byte* data) const { std::free(data); }
    };
    std::unique_ptr<std::byte, Free> data_;
    size_t size_ = 0;
};

class OperatorInput {
  public:
    static constexpr uint64_t kTensorBytesMax = 64 << 10;
    static constexpr uint64_t kWindowBytesMax = 256 << 10;

    OperatorInput(const ops::OperatorSpec& spec, FuzzInput input)
        : options(input.take<uint8_t>()), input_(input) {
        for (const ops::AttributeSpec& attribute : spec.attributes) take_attribute(attribute);
        struct Given {
            const ops::TensorSpec* spec;
            Header header;
        };
        std::vector<Given> given;
        for (const ops::TensorSpec& tensor : spec.tensors) {
            using ops::TensorRole;
            if (tensor.role == TensorRole::kOutput || tensor.role == TensorRole::kOptionalOutput) {
                continue;
            }
            given.push_back({&tensor, input_.take<Header>()});
        }
        for (const auto& [tensor, header] : given) {
            for (int count = header.count % 4; count > 0; --count) take_tensor(*tensor, header);
        }
    }

    const uint8_t options;
    nlohmann::json attributes = nlohmann::json::object();
    std::vector<calls::NamedTensor> tensors;
    std::deque<ExactBytes> memory;  // Of each tensor.

  private:
    enum Kind : uint8_t { kNone, kInt32, kCommon, kInt64, kFloat, kBool, kList, kText, kNumKinds };

    struct Header {
        uint8_t count, dtype, rank, pattern;
        std::array<uint16_t, 4> shape;
        uint16_t num_own_bytes;
    };
    static_assert(sizeof(Header) == 14 && ops::TensorView::kRankMax == 4);

    void take_attribute(const ops::AttributeSpec& spec) {
        constexpr int64_t kCommonValues[] = {0,
                                             1,
                                             2,
                                             3,
                                             -1,
                                             4,
                                             7,
                                             64,
                                             1024,
                                             INT32_MAX,
                                             int64_t{INT32_MAX} + 1,
                                             INT64_MAX,
                                             INT64_MIN};
        const auto kind = input_.take<uint8_t>();
        std::array<uint8_t, 8> bytes{};
        input_.fill(std::as_writable_bytes(std::span(bytes)));
        FuzzInput value(bytes.data(), bytes.size());
        const std::string name(spec.name);
        switch (kind % kNumKinds) {
            case kNone:
                return;
            case kInt32:
                attributes[name] = value.take<int32_t>();
                return;
            case kCommon:
                attributes[name] = kCommonValues[bytes[0] % std::size(kCommonValues)];
                return;
            case kInt64:
                attributes[name] = value.take<int64_t>();
                return;
            case kFloat:
                attributes[name] = value.take<float>();
                return;
            case kBool:
                attributes[name] = bytes[0] % 2 == 1;
                return;
            case kList: {
                nlohmann::json& list = attributes[name] = nlohmann::json::array();
                for (size_t i = 1; i <= bytes[0] % size_t{8}; ++i) {
                    const auto element = static_cast<int8_t>(bytes[i]);
                    list.push_back(element == INT8_MAX ? INT64_MAX : int64_t{element});
                }
                return;
            }
            default:
                attributes[name] = bytes[0] < spec.words.size() ? std::string(spec.words[bytes[0]])
                                                                : std::string(bytes[0], '\xc3');
        }
    }

    void take_tensor(const ops::TensorSpec& spec, const Header& header) {
        constexpr uint64_t kHuge[] = {uint64_t{1} << 31, uint64_t{1} << 40, uint64_t{1} << 62};
        constexpr uint16_t kFirstHuge = UINT16_MAX - 2;
        ops::TensorView view;
        view.dtype = static_cast<ops::DType>(header.dtype % 8);
        view.rank = header.rank % (ops::TensorView::kRankMax + 1);
        for (size_t axis = 0; axis < view.rank; ++axis) {
            const uint16_t extent = header.shape[axis];
            view.shape[axis] = extent < kFirstHuge ? extent : kHuge[extent - kFirstHuge];
        }
        const bool is_window = spec.dtypes.has(ops::DType::kUint8);
        const uint64_t size = bytes_of(view, is_window ? kWindowBytesMax : kTensorBytesMax);
        uint64_t stride = 1;
        for (size_t axis = view.rank; axis-- > 0;) {
            view.strides[axis] = stride;
            stride *= view.shape[axis];
        }
        ExactBytes& bytes = memory.emplace_back(size, 64);
        view.data = bytes.span().data();
        const size_t num_own = std::min<size_t>(header.num_own_bytes, size);
        input_.fill(bytes.span().first(num_own));
        fill(view.dtype, header.pattern, num_own, bytes.span());
        tensors.push_back({spec.name, view});
    }

    // Extents are made smaller until the memory is; what no memory holds stays as it is, and must
    // be refused by its shape. Returns the bytes to allocate.
    static uint64_t bytes_of(ops::TensorView& view, uint64_t most) {
        const std::span<uint64_t> shape(view.shape.data(), view.rank);
        while (true) {
            uint64_t bytes = size_of(view.dtype);
            for (const uint64_t extent : shape) {
                if (__builtin_mul_overflow(bytes, std::max<uint64_t>(1, extent), &bytes)) return 0;
            }
            if (std::find(shape.begin(), shape.end(), uint64_t{0}) != shape.end()) return 0;
            if (bytes <= most) return bytes;
            uint64_t& largest = *std::max_element(shape.begin(), shape.end());
            largest /= largest > 2 * most ? largest / most : 2;
        }
    }

    // The elements behind the first `from` bytes.
    static void fill(ops::DType dtype, uint8_t range, size_t from, std::span<std::byte> bytes) {
        std::minstd_rand random(range + 1U);
        const auto put = [&](auto value, size_t at) {
            std::memcpy(bytes.data() + at, &value, sizeof(value));
        };
        const size_t element = size_of(dtype);
        const size_t first = (from + element - 1) / element * element;
        for (size_t at = first; at + element <= bytes.size(); at += element) {
            const auto number = static_cast<int32_t>(random() % (range + 1U)) - (range & 1);
            switch (dtype) {
                case ops::DType::kFp32:
                    put(static_cast<float>(number) / 8, at);
                    break;
                case ops::DType::kInt32:
                    put(number, at);
                    break;
                case ops::DType::kInt64:
                    put(int64_t{number}, at);
                    break;
                case ops::DType::kBool:
                    put(static_cast<uint8_t>(number & 1), at);
                    break;
                case ops::DType::kBf16:
                    put(static_cast<uint16_t>(0x3f00 + number), at);
                    break;
                case ops::DType::kFp16:
                    put(static_cast<uint16_t>(0x3800 + number), at);
                    break;
                default:
                    put(static_cast<uint8_t>(number), at);
            }
        }
    }

    FuzzInput input_;
};

}  // namespace afd::fuzz
