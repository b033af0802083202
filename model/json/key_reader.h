// SPDX-License-Identifier: Apache-2.0
#pragma once

// KeyReader: reads the keys of one JSON object of a checkpoint and keeps the first problem, so that
// a reader of twenty keys checks once, at its end. A key that is absent or null takes its default,
// if it has one.
//
// A problem names the key, its value, of which it shows 400 bytes at most, and what is supported:
//   DIR/config.json: n_group is 3; supported: a divisor of n_routed_experts, 8

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "proto/status.h"

namespace afd::model {

// Limit of every single dimension: far above any model known, and small enough that products of
// three fit in 64 bits.
inline constexpr uint32_t kDimensionMax = 1u << 20;
inline constexpr uint32_t kHeadsMax = 4096;
inline constexpr uint32_t kLayersMax = 1024;

class KeyReader {
  public:
    // `object` outlives the reader; `origin` (a path) starts every message.
    KeyReader(const nlohmann::json& object, std::string origin);

    // Null for a key that is absent or null.
    const nlohmann::json* find(const std::string& key) const;

    // Whether the key is there and is null: in some files that is no default but says "none".
    bool is_null(const std::string& key) const;

    // An integer in [low, high]. After a problem: low.
    uint32_t count(const char* key, uint32_t low, uint32_t high, std::optional<uint32_t> fallback);

    // A finite number above 0. After a problem: 1.
    double positive(const char* key, std::optional<double> fallback);

    // A list of `size` finite numbers above 0. After a problem: of ones.
    std::vector<double> positives(const char* key, size_t size);

    // A finite number, 0 or above.
    double not_negative(const char* key, double fallback);

    bool flag(const char* key, bool fallback);

    // A list of at most `end` integers below `end`, as it stands; without the key none.
    std::vector<uint32_t> indices(const char* key, uint32_t end);

    // The text of a key that selects a behaviour; anything but `supported` is refused as
    // kUnimplemented, with `remedy` behind the list: what the user can do next.
    std::string choice(const char* key,
                       std::string fallback,
                       std::initializer_list<const char*> supported,
                       const char* remedy = "");

    // Refuses the key with the value that it has.
    void refuse(Code code, const std::string& key, const std::string& supported);

    // Refuses, as kUnimplemented, a key that has a value; one whose value is not `served`.
    void refuse_if_given(const char* key, const char* supported);
    void refuse_unless(const char* key, bool served);

    // Takes over the problem of the reader of an inner object.
    void adopt(const KeyReader& inner);

    bool failed() const { return problem_.has_value(); }
    // REQUIRES: failed().
    const Error& problem() const { return *problem_; }
    const std::string& origin() const { return origin_; }

  private:
    const nlohmann::json& object_;
    std::string origin_;
    std::optional<Error> problem_;
};

}  // namespace afd::model
