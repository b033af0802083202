// SPDX-License-Identifier: Apache-2.0
//
// Drives a fuzzer without libFuzzer: each file of the corpus, and mutations of it by a generator
// that starts the same each time. An input that ends the process has been written before:
// last_input in the working directory.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Input = std::vector<uint8_t>;

Input read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void run(const Input& input, const std::string& kept) {
    std::ofstream(kept, std::ios::binary)
        .write(reinterpret_cast<const char*>(input.data()),
               static_cast<std::streamsize>(input.size()));
    LLVMFuzzerTestOneInput(input.data(), input.size());
}

// One of: other bits, an extreme byte, bytes taken out, doubled, or from another file of the
// corpus.
void mutate(Input& input, const std::vector<Input>& corpus, std::mt19937& random) {
    if (input.empty()) input.push_back(0);
    const size_t at = random() % input.size();
    const size_t length = std::min<size_t>(1 + random() % 16, input.size() - at);
    const auto begin = input.begin() + static_cast<ptrdiff_t>(at);
    const auto end = begin + static_cast<ptrdiff_t>(length);
    switch (random() % 5) {
        case 0:
            input[at] = static_cast<uint8_t>(input[at] ^ (1U << random() % 8));
            return;
        case 1: {
            constexpr uint8_t kExtremes[] = {0, 1, 0x7f, 0x80, 0xff, '"', '{', '9', '-', '\n'};
            std::fill(begin, end, kExtremes[random() % std::size(kExtremes)]);
            return;
        }
        case 2:
            input.erase(begin, end);
            return;
        case 3: {
            const Input copy(begin, end);
            input.insert(begin, copy.begin(), copy.end());
            return;
        }
        default: {
            const Input& other = corpus[random() % corpus.size()];
            const size_t from = other.empty() ? 0 : random() % other.size();
            const size_t count = std::min<size_t>(other.size() - from, 1 + random() % 64);
            const auto first = other.begin() + static_cast<ptrdiff_t>(from);
            input.insert(begin, first, first + static_cast<ptrdiff_t>(count));
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    int num_mutations = 0;
    std::vector<std::filesystem::path> files;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        if (argument == "--mutations" && i + 1 < argc) {
            num_mutations = std::atoi(argv[++i]);
        } else if (std::filesystem::is_directory(argument)) {
            for (const auto& entry : std::filesystem::directory_iterator(argument)) {
                files.push_back(entry.path());
            }
        } else {
            files.emplace_back(argument);
        }
    }
    std::sort(files.begin(), files.end());
    std::vector<Input> corpus;
    for (const auto& file : files) corpus.push_back(read_file(file));
    if (corpus.empty()) {
        std::fprintf(stderr, "no inputs; usage: %s [--mutations N] FILE|DIRECTORY...\n", argv[0]);
        return 2;
    }
    const std::string kept = std::filesystem::path(argv[0]).filename().string() + ".last_input";
    std::mt19937 random(1);
    size_t num_runs = 0;
    for (const Input& original : corpus) {
        run(original, kept);
        Input input = original;
        for (int i = 0; i < num_mutations; ++i, ++num_runs) {
            // Mutations pile up; from time to time it begins anew.
            if (i % 8 == 0) input = original;
            mutate(input, corpus, random);
            run(input, kept);
        }
    }
    std::printf("%zu inputs, %zu mutations\n", corpus.size(), num_runs);
    return 0;
}
