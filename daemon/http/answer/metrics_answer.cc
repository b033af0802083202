// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/answer/metrics_answer.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

namespace afd::daemon {

namespace {

constexpr std::string_view kTotal = "_total";

std::string_view trimmed(std::string_view text) {
    const size_t begin = text.find_first_not_of(" \t");
    if (begin == std::string_view::npos) return "";
    return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Cuts `text` behind its first `mark`; what was before it.
std::string_view take_until(char mark, std::string_view& text) {
    const size_t end = std::min(text.find(mark), text.size());
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return trimmed(part);
}

// How much a header wants a type: its largest q, 0 without it.
double quality_of(std::string_view accept, std::string_view type) {
    double largest = 0;
    while (!accept.empty()) {
        std::string_view range = take_until(',', accept);
        if (take_until(';', range) != type) continue;
        double quality = 1;
        while (!range.empty()) {
            const std::string_view parameter = take_until(';', range);
            if (!parameter.starts_with("q=")) continue;
            std::from_chars(parameter.data() + 2, parameter.data() + parameter.size(), quality);
        }
        largest = std::max(largest, quality);
    }
    return largest;
}

bool prefers_openmetrics(std::string_view accept) {
    const double quality = quality_of(accept, "application/openmetrics-text");
    return quality > 0 && quality >= quality_of(accept, "text/plain");
}

// A whole number as OpenMetrics 1.0.0 wants it of a bound ("Canonical Numbers"): as Go prints a
// float64, and with .0 where that has neither point nor exponent.
std::string canonical(std::string_view whole_number) {
    constexpr size_t kDigitsMax = 6;
    if (whole_number.size() <= kDigitsMax) return std::string(whole_number) + ".0";
    const std::string_view all = whole_number.substr(0, whole_number.find_last_not_of('0') + 1);
    return fmt::format("{}{}{}e+{:02}",
                       all.substr(0, 1),
                       all.size() > 1 ? "." : "",
                       all.substr(1),
                       whole_number.size() - 1);
}

// The sample, with its bound in canonical form if it is that of a bucket: `le` is its last label.
std::string with_canonical_bound(std::string_view line) {
    const size_t end = line.rfind("\"} ");
    if (end == std::string_view::npos || end == 0) return std::string(line);
    const size_t begin = line.rfind('"', end - 1) + 1;
    const std::string_view labels = line.substr(0, begin);
    const std::string_view bound = line.substr(begin, end - begin);
    const bool is_bound = labels.ends_with("{le=\"") || labels.ends_with(",le=\"");
    const bool is_whole = bound.find_first_not_of("0123456789") == std::string_view::npos;
    if (!is_bound || !is_whole || bound.empty()) return std::string(line);
    return fmt::format("{}{}{}", labels, canonical(bound), line.substr(end));
}

// The family of a counter has the name without the _total that its samples have, the bounds of
// buckets are written otherwise, and the end is marked.
std::string to_openmetrics(std::string_view text) {
    std::string converted;
    converted.reserve(text.size() + 16);
    // HELP stands before TYPE, which says whether it is a counter's.
    std::string_view help;
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size() - 1);
        const std::string_view line = text.substr(0, end + 1);
        text.remove_prefix(line.size());
        if (line.starts_with("# HELP ")) {
            help = line;
            continue;
        }
        const bool is_counter = line.starts_with("# TYPE ") && line.ends_with(" counter\n");
        for (const std::string_view one : {help, line}) {
            const size_t name_end = one.starts_with("# ") ? one.find(' ', 7) : 0;
            const bool has_total = is_counter && name_end != std::string_view::npos &&
                                   one.substr(0, name_end).ends_with(kTotal);
            const size_t cut = has_total ? name_end - kTotal.size() : 0;
            converted += one.substr(0, cut);
            const std::string_view rest = one.substr(has_total ? name_end : 0);
            converted += one.starts_with('#') ? std::string(rest) : with_canonical_bound(rest);
        }
        help = {};
    }
    return converted + "# EOF\n";
}

}  // namespace

HttpResponse answer_metrics(const std::string& text, std::string_view accept) {
    HttpResponse response;
    if (prefers_openmetrics(accept)) {
        response.content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        response.body = to_openmetrics(text);
    } else {
        response.content_type = "text/plain; version=0.0.4; charset=utf-8";
        response.body = text;
    }
    response.headers.emplace_back("Vary", "Accept");
    return response;
}

}  // namespace afd::daemon
