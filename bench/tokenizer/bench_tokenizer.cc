// SPDX-License-Identifier: Apache-2.0

// bench_tokenizer: how fast texts become tokens, on one core.
//
//   bench_tokenizer TEXT DIRECTORY...
//
// TEXT: a file in UTF-8; at least a few MB of what people write. DIRECTORY: a tokenizer.json or
// tiktoken.model, and tokenizer_config.json. For each: MB/s of the whole text at once, and of its
// parts of 2 KiB, which is a prompt; by the time of the processor, the best of some runs. `memcpy`:
// how often a copy of the text is faster, measured in the same run.

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/tokenizer.h"
#include "model/unicode/utf8.h"

namespace afd::bench {
namespace {

constexpr int kRuns = 5;
constexpr size_t kPromptBytes = 2048;

double seconds_of(const std::function<void()>& work) {
    double best = 1e9;
    for (int i = 0; i < kRuns; ++i) {
        const std::clock_t begin = std::clock();
        work();
        best = std::min(best, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
    }
    return best;
}

// Cut before characters.
std::vector<std::string_view> prompts_of(std::string_view text) {
    std::vector<std::string_view> parts;
    while (!text.empty()) {
        size_t size = std::min(text.size(), kPromptBytes);
        const auto is_inside = [&](size_t at) {
            return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
        };
        while (is_inside(size)) --size;
        parts.push_back(text.substr(0, size));
        text.remove_prefix(size);
    }
    return parts;
}

int report(const std::string& text, const std::string& directory, double copy_s) {
    auto tokenizer = model::Tokenizer::load(directory);
    if (!tokenizer.ok()) {
        fmt::print(stderr, "{}: {}\n", directory, tokenizer.error().message);
        return 1;
    }
    size_t num_tokens = 0;
    const auto encode = [&](std::string_view part) {
        const auto ids = tokenizer.value().encode(part);
        if (ids.ok()) num_tokens += ids.value().size();
    };
    const double whole_s = seconds_of([&] {
        num_tokens = 0;
        encode(text);
    });
    const size_t num_of_whole = num_tokens;
    const std::vector<std::string_view> prompts = prompts_of(text);
    const double prompts_s = seconds_of([&] {
        for (const std::string_view prompt : prompts) encode(prompt);
    });
    const double megabytes = static_cast<double>(text.size()) / 1e6;
    fmt::print(
        "{:<40} {:>8.1f} MB/s whole {:>8.1f} MB/s prompts {:>6.2f} bytes/token {:>6.0f} x memcpy\n",
        directory,
        megabytes / whole_s,
        megabytes / prompts_s,
        static_cast<double>(text.size()) / static_cast<double>(num_of_whole),
        whole_s / copy_s);
    return 0;
}

int run(int argc, char** argv) {
    if (argc < 3) {
        fmt::print(stderr, "usage: {} TEXT DIRECTORY...\n", argv[0]);
        return 2;
    }
    std::ifstream file(argv[1], std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (text.empty() || !model::is_valid_utf8(text)) {
        fmt::print(stderr, "{}: must be a text in UTF-8, and not empty\n", argv[1]);
        return 2;
    }
    std::string copy(text.size(), '\0');
    const double copy_s = seconds_of([&] { std::memcpy(copy.data(), text.data(), text.size()); });
    fmt::print("{:.1f} MB of text\n", static_cast<double>(text.size()) / 1e6);
    int status = 0;
    for (int i = 2; i < argc; ++i) status |= report(text, argv[i], copy_s);
    return status;
}

}  // namespace
}  // namespace afd::bench

int main(int argc, char** argv) {
    return afd::bench::run(argc, argv);
}
