// SPDX-License-Identifier: Apache-2.0
#pragma once

// JsonBuilder: makes a document of a parser's events (nlohmann's SAX interface) and stops at the
// first thing that is beyond its limits: the bytes are others', and so would be the time and memory
// that they cost. `Json` is nlohmann::json or ordered_json.

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "proto/failure.h"

namespace afd::model {

struct JsonLimits {
    // Of objects and arrays within each other: whoever walks over a document recurses.
    size_t depth = 64;
    // Of one object. nlohmann::ordered_json finds a key by looking at each member before it.
    size_t members = SIZE_MAX;
    size_t values = SIZE_MAX;  // In all: each object, array, text, number, true, false and null.
    // Else the last of equal keys stays, as with most parsers.
    bool refuses_repeated_keys = false;
    // A whole number that 64 bits do not hold is a binary value of its digits, else the nearest
    // double.
    bool keeps_long_integers = false;
    // Of the outermost object only this member is kept; the others are passed over and neither
    // counted nor kept. Empty: all.
    std::string only_member = {};
};

template <typename Json>
class JsonBuilder {
  public:
    explicit JsonBuilder(JsonLimits limits) : limits_(std::move(limits)) {}

    bool null() { return put(Json()); }
    bool boolean(bool value) { return put(Json(value)); }
    bool number_integer(typename Json::number_integer_t value) { return put(Json(value)); }
    bool number_unsigned(typename Json::number_unsigned_t value) { return put(Json(value)); }
    // Also of a whole number that 64 bits do not hold, with the text that it was.
    bool number_float(typename Json::number_float_t value, const std::string& text) {
        using Digits = typename Json::binary_t::container_type;
        const bool is_whole = text.find_first_of(".eE") == std::string::npos;
        if (!limits_.keeps_long_integers || !is_whole) return put(Json(value));
        return put(Json::binary(Digits(text.begin(), text.end())));
    }
    bool string(std::string& value) { return put(Json(std::move(value))); }
    bool binary(typename Json::binary_t& value) { return put(Json(std::move(value))); }

    bool start_object(std::size_t) { return open(Json::object()); }
    bool start_array(std::size_t) { return open(Json::array()); }
    bool end_object() { return close(); }
    bool end_array() { return close(); }

    bool key(std::string& name) {
        if (is_passing_) return true;
        if (stack_.size() == 1 && !limits_.only_member.empty() && name != limits_.only_member) {
            is_passing_ = true;
            return true;
        }
        auto& object = stack_.back()->template get_ref<typename Json::object_t&>();
        auto [at, is_new] = object.emplace(name, Json());
        if (!is_new && limits_.refuses_repeated_keys) {
            return fail("the key \"" + name + "\" stands twice in one object");
        }
        if (object.size() > limits_.members) {
            return fail(fmt::format("an object has more than {} members", limits_.members));
        }
        slot_ = &at->second;
        return true;
    }

    template <typename Exception>
    bool parse_error(std::size_t position, const std::string&, const Exception& exception) {
        constexpr int kNumberOverflow = 406;  // The library's number for it.
        if (exception.id == kNumberOverflow) return fail("it has a number beyond 1.8e308");
        is_json_ = false;
        return fail(fmt::format("not valid JSON near byte {}", position));
    }

    // What is wrong with the bytes, and whether they are JSON for all that.
    const std::string& problem() const { return problem_; }
    bool is_json() const { return is_json_; }
    // REQUIRES: the parser came to the end.
    Json take() { return std::move(root_); }

  private:
    bool fail(std::string problem) {
        problem_ = std::move(problem);
        return false;
    }

    // Null: there are too many.
    Json* place(Json value) {
        if (++num_values_ > limits_.values) {
            fail(fmt::format("it has more than {} values", limits_.values));
            return nullptr;
        }
        Json* target = &root_;
        if (!stack_.empty() && stack_.back()->is_array()) {
            auto& array = stack_.back()->template get_ref<typename Json::array_t&>();
            array.push_back(std::move(value));
            return &array.back();
        }
        if (!stack_.empty()) target = slot_;
        *target = std::move(value);
        return target;
    }

    bool put(Json value) {
        if (is_passing_) return pass();
        return place(std::move(value)) != nullptr;
    }

    bool open(Json value) {
        if (stack_.size() + num_passed_open_ == limits_.depth) {
            return fail(fmt::format("nested deeper than {} levels", limits_.depth));
        }
        if (is_passing_) {
            ++num_passed_open_;
            return true;
        }
        Json* const placed = place(std::move(value));
        if (placed == nullptr) return false;
        stack_.push_back(placed);
        return true;
    }

    bool close() {
        if (is_passing_) {
            --num_passed_open_;
            return pass();
        }
        stack_.pop_back();
        return true;
    }

    // A value is over that is not kept.
    bool pass() {
        is_passing_ = num_passed_open_ > 0;
        return true;
    }

    const JsonLimits limits_;
    Json root_;
    Json* slot_ = nullptr;      // Where the value of the last key goes.
    std::vector<Json*> stack_;  // Open objects and arrays; a parent does not move while open.
    size_t num_values_ = 0;
    bool is_passing_ = false;
    size_t num_passed_open_ = 0;
    bool is_json_ = true;
    std::string problem_;
};

}  // namespace afd::model
