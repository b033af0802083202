// SPDX-License-Identifier: Apache-2.0
#include "model/foreign/foreign_int4.h"

#include <algorithm>
#include <array>
#include <string>

#include "proto/failure.h"

namespace afd::model {
namespace {

using ops::Bf16;

constexpr uint8_t kMiddle = 8;  // The zero of symmetric int4.
constexpr uint32_t kOneOfEach = 0x11111111;
constexpr std::array<uint8_t, kNibblesOfWord> kAwqOrder = {0, 2, 4, 6, 1, 3, 5, 7};

// Rows of a matrix in int4, each number by itself.
struct Int4Values {
    uint64_t num_groups = 0;
    std::vector<uint8_t> q = {};          // [rows, K], 0 to 15
    std::vector<uint8_t> zero = {};       // [rows, groups], the same
    std::vector<float> scale = {};        // [rows, groups]
    std::vector<uint32_t> group_of = {};  // [K]
};

class Int4Reader {
  public:
    explicit Int4Reader(const ForeignMatrix& matrix)
        : tensors_(matrix.tensors),
          form_(matrix.form),
          weight_(matrix.weight),
          stem_(matrix.stem()),
          num_outputs_(matrix.num_outputs),
          depth_(matrix.depth),
          num_groups_(form_.group == 0 ? 1 : ceil_div(depth_, form_.group)) {}

    Result<Int4Values> read(uint64_t first, uint64_t count) const {
        Int4Values values{.num_groups = num_groups_};
        AFD_ASSIGN(values.group_of, read_groups());
        if (form_.kind == ForeignKind::kPackedInt4) {
            AFD_TRY(read_packed(first, count, values));
        } else {
            AFD_TRY(read_transposed(first, count, values));
        }
        if (form_.is_symmetric) AFD_TRY(settle_middle(values.zero));
        return values;
    }

  private:
    Result<std::vector<uint32_t>> read_groups() const {
        const std::string name =
            form_.kind == ForeignKind::kGptq ? stem_ + ".g_idx" : weight_ + "_g_idx";
        std::vector<uint32_t> groups(depth_);
        const std::array<uint64_t, 1> shape = {depth_};
        if (form_.kind == ForeignKind::kAwq || tensors_.find(name) == nullptr) {
            for (uint64_t k = 0; k < depth_ && form_.group != 0; ++k) {
                groups[k] = static_cast<uint32_t>(k / form_.group);
            }
            return groups;
        }
        AFD_ASSIGN(const auto stored, tensors_.read_integers(name, shape));
        for (uint64_t k = 0; k < depth_; ++k) {
            if (stored[k] < 0 || static_cast<uint64_t>(stored[k]) >= num_groups_) {
                return data_loss(
                    "tensor {}: element [{}] is {}; there are {} groups. Fetch the "
                    "file again",
                    with(name, k, stored[k], num_groups_));
            }
            groups[k] = static_cast<uint32_t>(stored[k]);
        }
        return groups;
    }

    // compressed-tensors.
    Result<> read_packed(uint64_t first, uint64_t count, Int4Values& out) const {
        const uint64_t words_of_row = ceil_div(depth_, kNibblesOfWord);
        AFD_ASSIGN(const auto words,
                   read_words(tensors_,
                              weight_ + "_packed",
                              {num_outputs_, words_of_row},
                              {first, count, 0, words_of_row}));
        out.q.resize(count * depth_);
        for (uint64_t n = 0; n < count; ++n) {
            for (uint64_t k = 0; k < depth_; ++k) {
                out.q[n * depth_ + k] =
                    nibble(words[n * words_of_row + k / kNibblesOfWord], k % kNibblesOfWord);
            }
        }
        const std::array<uint64_t, 2> scale_shape = {num_outputs_, num_groups_};
        AFD_ASSIGN(
            out.scale,
            read_scales(tensors_, weight_ + "_scale", scale_shape, {first, count, 0, num_groups_}));
        out.zero.assign(count * num_groups_, kMiddle);
        if (tensors_.find(weight_ + "_zero_point") == nullptr) return {};
        AFD_ASSIGN(
            const auto zeros,
            read_words(tensors_,
                       weight_ + "_zero_point",
                       {ceil_div(num_outputs_, kNibblesOfWord), num_groups_},
                       {first / kNibblesOfWord, ceil_div(count, kNibblesOfWord), 0, num_groups_}));
        for (uint64_t i = 0; i < out.zero.size(); ++i) {
            const uint64_t n = i / num_groups_;
            out.zero[i] = nibble(zeros[n / kNibblesOfWord * num_groups_ + i % num_groups_],
                                 n % kNibblesOfWord);
        }
        return {};
    }

    // GPTQ and AWQ: rows of the matrix are columns of the tensors.
    Result<> read_transposed(uint64_t first, uint64_t count, Int4Values& out) const {
        const bool is_awq = form_.kind == ForeignKind::kAwq;
        const uint64_t first_word = first / kNibblesOfWord;
        const uint64_t num_words = ceil_div(count, kNibblesOfWord);
        const std::string name = stem_ + ".qweight";
        AFD_ASSIGN(const auto words,
                   is_awq ? read_words(tensors_,
                                       name,
                                       {depth_, ceil_div(num_outputs_, kNibblesOfWord)},
                                       {0, depth_, first_word, num_words})
                          : read_words(tensors_,
                                       name,
                                       {ceil_div(depth_, kNibblesOfWord), num_outputs_},
                                       {0, ceil_div(depth_, kNibblesOfWord), first, count}));
        out.q.resize(count * depth_);
        for (uint64_t k = 0; k < depth_; ++k) {
            for (uint64_t n = 0; n < count; ++n) {
                out.q[n * depth_ + k] =
                    is_awq ? along_rows(words, k * num_words, n)
                           : nibble(words[k / kNibblesOfWord * count + n], k % kNibblesOfWord);
            }
        }
        const std::array<uint64_t, 2> scale_shape = {num_groups_, num_outputs_};
        AFD_ASSIGN(
            const auto scales,
            read_scales(tensors_, stem_ + ".scales", scale_shape, {0, num_groups_, first, count}));
        AFD_ASSIGN(auto zeros,
                   read_words(tensors_,
                              stem_ + ".qzeros",
                              {num_groups_, ceil_div(num_outputs_, kNibblesOfWord)},
                              {0, num_groups_, first_word, num_words}));
        // Writers subtract from whole words: a zero point of 0 borrows from the next one.
        for (uint32_t& word : zeros) word += form_.has_zeros_less_one ? kOneOfEach : 0;
        out.scale.resize(count * num_groups_);
        out.zero.resize(out.scale.size());
        for (uint64_t n = 0; n < count; ++n) {
            for (uint64_t g = 0; g < num_groups_; ++g) {
                out.scale[n * num_groups_ + g] = scales[g * count + n];
                out.zero[n * num_groups_ + g] = along_rows(zeros, g * num_words, n);
            }
        }
        return {};
    }

    // Kernels for symmetric weights do not look at zero points, so writers have mistaken one
    // format of GPTQ for the other: then they are all one too large or too small.
    Result<> settle_middle(std::vector<uint8_t>& zero) const {
        const bool is_gptq = form_.kind == ForeignKind::kGptq;
        const uint8_t mistaken = form_.has_zeros_less_one ? kMiddle + 1 : kMiddle - 1;
        if (is_gptq && std::ranges::count(zero, mistaken) == std::ssize(zero)) {
            std::ranges::fill(zero, kMiddle);
        }
        if (std::ranges::count(zero, kMiddle) == std::ssize(zero)) return {};
        return unimplemented(
            "tensor {}: it has zero points, which config.json rules out; say {} there",
            with(weight_, is_gptq ? "\"sym\": false" : "\"symmetric\": false"));
    }

    static uint8_t nibble(uint32_t word, uint64_t index) {
        return static_cast<uint8_t>(word >> (4 * index) & 15);
    }

    // Number n of a row of words that begins at `begin`.
    uint8_t along_rows(const std::vector<uint32_t>& words, uint64_t begin, uint64_t n) const {
        const uint64_t index = n % kNibblesOfWord;
        if (form_.kind != ForeignKind::kAwq)
            return nibble(words[begin + n / kNibblesOfWord], index);
        const auto at = std::ranges::find(kAwqOrder, index) - kAwqOrder.begin();
        return nibble(words[begin + n / kNibblesOfWord], static_cast<uint64_t>(at));
    }

    const TensorFiles& tensors_;
    const ForeignForm& form_;
    const std::string weight_;
    const std::string stem_;
    const uint64_t num_outputs_;
    const uint64_t depth_;
    const uint64_t num_groups_;
};

}  // namespace

Result<std::vector<Bf16>> foreign_int4_rows(const ForeignMatrix& matrix,
                                            uint64_t first,
                                            uint64_t count) {
    AFD_ASSIGN(const Int4Values values, Int4Reader(matrix).read(first, count));
    const uint64_t depth = matrix.depth;
    std::vector<Bf16> out(count * depth);
    for (uint64_t n = 0; n < count; ++n) {
        for (uint64_t k = 0; k < depth; ++k) {
            const uint64_t group = n * values.num_groups + values.group_of[k];
            const int q = int{values.q[n * depth + k]} - int{values.zero[group]};
            out[n * depth + k] = ops::from_float(static_cast<float>(q) * values.scale[group]);
        }
    }
    AFD_TRY(check_expanded(matrix.weight, out, depth, first));
    return out;
}

Result<ForeignInt4> read_foreign_int4(const ForeignMatrix& matrix, uint64_t group) {
    const uint64_t num_outputs = matrix.num_outputs;
    const uint64_t depth = matrix.depth;
    AFD_ASSIGN(const Int4Values values, Int4Reader(matrix).read(0, num_outputs));
    const auto is_other = [&](uint64_t k) {
        return values.group_of[k] != (matrix.form.group == 0 ? 0 : k / matrix.form.group);
    };
    const bool is_gptq = matrix.form.kind == ForeignKind::kGptq;
    bool is_in_order = true;
    for (uint64_t k = 0; k < depth; ++k) is_in_order = is_in_order && !is_other(k);
    if (!is_in_order) {
        return unimplemented(
            "tensor {}: its groups are out of order, which config.json rules out; with {} there, "
            "the weights are expanded to bf16",
            with(matrix.weight,
                 is_gptq ? "\"desc_act\": true and \"static_groups\": false"
                         : "\"actorder\": \"group\""));
    }
    const uint64_t row_bytes = ceil_div(depth, 2);
    const uint64_t groups = ceil_div(depth, group);
    ForeignInt4 out;
    out.nibbles.resize(num_outputs * row_bytes);
    out.scale.resize(num_outputs * groups);
    if (!matrix.form.is_symmetric) out.zero.resize(out.scale.size());
    for (uint64_t n = 0; n < num_outputs; ++n) {
        for (uint64_t k = 0; k < depth; ++k) {
            // q - 8 in two's complement.
            const unsigned nibble = values.q[n * depth + k] ^ kMiddle;
            uint8_t& byte = out.nibbles[n * row_bytes + k / 2];
            byte = static_cast<uint8_t>(byte | nibble << (k % 2 * 4));
        }
        for (uint64_t g = 0; g < groups; ++g) {
            const uint64_t from = n * values.num_groups + values.group_of[g * group];
            out.scale[n * groups + g] = values.scale[from];
            if (out.zero.empty()) continue;
            out.zero[n * groups + g] = static_cast<int8_t>(int{values.zero[from]} - int{kMiddle});
        }
    }
    return out;
}

}  // namespace afd::model
