// SPDX-License-Identifier: Apache-2.0
#include "model/grammar/schema/number_bounds.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/json/ordered_json.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Bound = NumberRange::Bound;

// The tighter one wins.
class BoundsReader {
  public:
    BoundsReader(const OrderedJson& schema, bool is_whole, const std::string& where)
        : schema_(schema), where_(where) {
        range_.is_whole = is_whole;
    }

    Result<std::optional<NumberRange>> read() {
        for (const bool is_excluded : {false, true}) {
            AFD_TRY(read_one(is_excluded ? "exclusiveMinimum" : "minimum", true, is_excluded));
            AFD_TRY(read_one(is_excluded ? "exclusiveMaximum" : "maximum", false, is_excluded));
        }
        if (is_empty_ || range_.is_empty()) {
            return invalid_argument("json_schema: {}: there is no number between its bounds",
                                    with(where_));
        }
        if (!range_.least && !range_.most) return std::optional<NumberRange>();
        return std::optional(range_);
    }

  private:
    Result<> read_one(const char* name, bool is_least, bool is_excluded) {
        const auto found = schema_.find(name);
        if (found == schema_.end()) return {};
        if (is_long_integer(*found)) {
            return pass_beyond(shown_text(*found).front() != '-', is_least);
        }
        if (found->is_number_integer()) return read_integer(*found, is_least, is_excluded);
        if (!found->is_number()) {
            return invalid_argument("json_schema: {}: {} is {}; it must be a number",
                                    with(where_, name, shown_text(*found)));
        }
        const auto value = found->get<double>();
        // As a double kMost is 10^18; the next lower double is below kMost.
        if (std::abs(value) >= static_cast<double>(NumberRange::kMost)) {
            return pass_beyond(value > 0, is_least);
        }
        const bool is_fraction = std::trunc(value) != value;
        if (is_fraction && !range_.is_whole) {
            return invalid_argument(
                "json_schema: {}: {} is {}: bounds of numbers that are not integers must be whole",
                with(where_, name, shown_text(*found)));
        }
        take({static_cast<int64_t>(is_least ? std::ceil(value) : std::floor(value)),
              is_excluded && !is_fraction},
             is_least);
        return {};
    }

    // Not as a double, which has 53 bits of it.
    Result<> read_integer(const OrderedJson& bound, bool is_least, bool is_excluded) {
        constexpr int64_t kMost = NumberRange::kMost;
        const bool is_above = bound.is_number_unsigned()
                                  ? bound.get<uint64_t>() > static_cast<uint64_t>(kMost)
                                  : bound.get<int64_t>() > kMost;
        if (is_above || (!bound.is_number_unsigned() && bound.get<int64_t>() < -kMost)) {
            return pass_beyond(is_above, is_least);
        }
        take({bound.get<int64_t>(), is_excluded}, is_least);
        return {};
    }

    // Beyond every number that is written: no bound, or none that anything meets.
    Result<> pass_beyond(bool is_positive, bool is_least) {
        is_empty_ |= is_positive == is_least;
        return {};
    }

    void take(const Bound& bound, bool is_least) {
        std::optional<Bound>& present = is_least ? range_.least : range_.most;
        const bool is_tighter =
            !present || bound.value == present->value || (bound.value > present->value) == is_least;
        // An exclusive one comes last, and is the tighter of two that are the same.
        if (is_tighter) present = bound;
    }

    const OrderedJson& schema_;
    const std::string& where_;
    NumberRange range_;
    bool is_empty_ = false;
};

}  // namespace

Result<std::optional<NumberRange>> read_number_bounds(const OrderedJson& schema,
                                                      bool is_whole,
                                                      const std::string& where) {
    return BoundsReader(schema, is_whole, where).read();
}

}  // namespace afd::model
