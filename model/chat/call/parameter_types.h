// SPDX-License-Identifier: Apache-2.0
#pragma once

// ParameterTypes: what kinds of values the parameters of tools take, as their JSON Schemas say.
// Models that write calls as XML write every value as bare text: whether 5 is a number or a string
// only the schema knows.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace afd::model {

class ParameterTypes {
  public:
    // Kinds of JSON values; a parameter may take several.
    enum Kind : uint32_t {
        kString = 1,
        kNumber = 2,
        kBoolean = 4,
        kNull = 8,
        kObject = 16,
        kArray = 32,
        kAny = 63,  // The schema does not say, or there is none.
    };
    using KindsByParameter = std::map<std::string, uint32_t, std::less<>>;
    // The kinds of a function's parameters: of those that its schema lists, and of all others.
    struct FunctionKinds {
        KindsByParameter listed = {};
        uint32_t others = kAny;

        bool says_nothing() const { return listed.empty() && others == kAny; }
        bool operator==(const FunctionKinds&) const = default;
    };
    // Of each function.
    using Kinds = std::map<std::string, FunctionKinds, std::less<>>;

    ParameterTypes() = default;
    explicit ParameterTypes(Kinds kinds) : kinds_(std::move(kinds)) {}
    // `tools`: as in a Conversation. Of the `parameters` of each also what $ref, allOf, anyOf and
    // oneOf lead to. What is no schema says nothing.
    static std::shared_ptr<const ParameterTypes> of(const std::vector<std::string>& tools);

    // The value of a parameter, which a model has written as `text`, as JSON: the text itself where
    // it is a value of a kind that the parameter takes, else a string. Where no string is taken any
    // other value stays, and the words True, False and None of Python are values, too.
    std::string json_of(std::string_view function,
                        std::string_view parameter,
                        std::string_view text) const;

    const Kinds& kinds() const { return kinds_; }

  private:
    // kAny where nothing is known.
    uint32_t kinds_of(std::string_view function, std::string_view parameter) const;

    Kinds kinds_;
};

}  // namespace afd::model
