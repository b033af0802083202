// SPDX-License-Identifier: Apache-2.0
#pragma once

// OperatorCheck: a request judged by its operator's record.
//
//   OperatorCheck check(kMoeInitRoutingV3Spec, request);
//   check.attributes();
//   check.tensors();
//   AFD_TRY(check.finish());
//   const size_t num_tokens = check.size("N");
//
// attributes() and tensors() go through the record in its order, without what was judged or left
// out before: what must come first is judged by name. Entries that are bound to no member, integer
// lists and windows of several workers are the operator's own business.
//
// The first thing wrong is kept; the later calls then do nothing. Every error names the operator,
// the parameter, its value and what is allowed.

#include <bitset>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ops/record/operator_spec.h"
#include "proto/check.h"
#include "proto/failure.h"

namespace afd::ops {

// As much of a caller's text as a message repeats, on one line: blanks for control characters.
std::string excerpt(std::string_view text);

// "[4, 256]".
std::string shape_text(std::span<const size_t> shape);
inline std::string shape_text(const ConstTensorView& view) {
    return shape_text(std::span(view.shape).first(view.rank));
}

class OperatorCheck {
  public:
    explicit OperatorCheck(const OperatorSpec& spec) : spec_(spec) {}
    template <typename Request>
    OperatorCheck(const RecordOf<Request>& record, const Request& request)
        : spec_(record), request_(&request) {}

    // The request's own values. REQUIRES: the check was made with a request.
    void attributes();
    void tensors();
    void attribute(std::string_view name);
    void tensor(std::string_view name);
    // Neither attributes() nor tensors() will look at it.
    void leave_out(std::string_view name);

    // The same with a value from elsewhere.

    // Range or choice; integers become names in shapes.
    // REQUIRES: the record has the attribute, of this kind (bool counts as integer 0 or 1).
    void attribute(std::string_view name, int64_t value);
    void attribute(std::string_view name, double value);
    void attribute(std::string_view name, std::string_view value);

    // Presence, dtype, rank, contiguity. Sizes are judged by finish(), when all names are known.
    // A tensor not given is rank 0; an optional one with 0 elements counts as not given.
    void tensor(std::string_view name, const ConstTensorView& view);

    // A name for shapes that the operator computed.
    void bind(std::string_view name, size_t size);

    // A further constraint; `message` follows the operator's name.
    template <typename... Values>
    void require(bool holds, Text<Values...> message, const With<Values...>& values = {}) {
        if (!holds) fail(fmt::vformat(message, values));
    }

    // Judges the sizes of all tensors. Errors: kInvalidArgument.
    Result<> finish();

    // The size that a name stands for. REQUIRES: finish() was ok and the record uses the name.
    size_t size(std::string_view name) const;

  private:
    struct Binding {
        std::string_view name;
        int64_t value;
        std::string_view from;  // The tensor or attribute that said it.
    };
    struct Given {
        const TensorSpec* spec;
        ConstTensorView view;
    };

    void fail(std::string message);
    template <typename T>
    const T& member(const RequestMember& member) const {
        AFD_ASSERT(request_ != nullptr, "the check was made without a request");
        return *static_cast<const T*>(member.of(const_cast<void*>(request_)));
    }
    void judge(const AttributeSpec& spec);
    void judge(const TensorSpec& spec);
    size_t place_of(std::string_view name) const;
    const Binding* find(std::string_view name) const;
    // The value of a dimension; nothing while it holds a name without a value.
    std::optional<int64_t> evaluate(std::string_view dimension) const;
    // Names of one-name dimensions are bound; returns whether `form` matches as far as is known.
    // With bind_all every name must have its value.
    bool matches(std::string_view form, const Given& given, bool bind_names, bool bind_all);
    std::string text_of_names(std::string_view forms) const;

    const OperatorSpec& spec_;
    const void* request_ = nullptr;
    static constexpr size_t kBindingsMax = 64;
    static constexpr size_t kTensorsMax = 32;
    Binding bindings_[kBindingsMax];
    size_t num_bindings_ = 0;
    Given given_[kTensorsMax];
    size_t num_given_ = 0;
    // By place in the record, attributes first.
    static constexpr size_t kEntriesMax = 64;
    std::bitset<kEntriesMax> done_;
    std::string error_;
};

}  // namespace afd::ops
