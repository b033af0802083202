// SPDX-License-Identifier: Apache-2.0
#include "model/grammar/vocabulary_trie.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "model/grammar/schema/byte_program.h"
#include "model/unicode/utf8.h"
#include "proto/check.h"
#include "proto/failure.h"

namespace afd::model {

struct VocabularyTrie::Header {
    static constexpr uint64_t kMagic = 0x3145495254444641;  // "AFDTRIE1"

    uint64_t magic = kMagic;
    uint32_t num_nodes = 0;
    uint32_t num_ids = 0;
    uint32_t vocab_size = 0;
    uint32_t num_bytes = 0;
    uint32_t num_plain = 0;
    uint32_t total_bytes = 0;

    size_t num_words() const { return (size_t{vocab_size} + 63) / 64; }
    // Nodes and starts come in fours; the mask wants a multiple of eight.
    size_t fours_bytes() const {
        const size_t num_fours =
            3 * size_t{num_nodes} + size_t{num_ids} + size_t{vocab_size} + 1 + num_plain;
        return 4 * (num_fours + num_fours % 2);
    }
    uint64_t needed_bytes() const {
        return sizeof(Header) + fours_bytes() + 8 * num_words() + num_bytes;
    }
};

// The parts, before it is known how large they are.
struct VocabularyTrie::Builder {
    std::vector<Node> nodes;
    std::vector<uint32_t> ids;
    std::vector<uint32_t> starts{0};
    std::vector<uint64_t> plain;
    std::vector<uint32_t> by_length;
    std::string bytes;

    explicit Builder(std::span<const std::string> token_bytes)
        : plain((token_bytes.size() + 63) / 64) {
        for (const std::string& token : token_bytes) {
            if (token.size() <= kTokenBytesMax) bytes += token;
            starts.push_back(static_cast<uint32_t>(bytes.size()));
        }
        for (uint32_t id = 0; id + 1 < starts.size(); ++id) {
            if (!is_plain_text(bytes_of(id))) continue;
            plain[id / 64] |= uint64_t{1} << (id % 64);
            by_length.push_back(id);
        }
        std::stable_sort(by_length.begin(), by_length.end(), [&](uint32_t a, uint32_t b) {
            return num_characters(bytes_of(a)) > num_characters(bytes_of(b));
        });
    }

    std::string_view bytes_of(uint32_t id) const {
        return std::string_view(bytes).substr(starts[id], starts[id + 1] - starts[id]);
    }

    void add_nodes() {
        std::vector<uint32_t> order(starts.size() - 1);
        std::iota(order.begin(), order.end(), 0);
        std::erase_if(order, [&](uint32_t id) { return bytes_of(id).empty(); });
        // By bytes, then by id: equal tokens share a node.
        std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
            return bytes_of(a) < bytes_of(b);
        });
        std::vector<uint32_t> path;  // Nodes from the top to the last one.
        for (const uint32_t id : order) {
            const std::string_view token = bytes_of(id);
            size_t shared = 0;
            while (shared < path.size() && shared < token.size() &&
                   nodes[path[shared]].byte == static_cast<uint8_t>(token[shared])) {
                ++shared;
            }
            leave(path, shared);
            for (size_t i = shared; i < token.size(); ++i) {
                path.push_back(static_cast<uint32_t>(nodes.size()));
                nodes.push_back({.skip = 0,
                                 .tokens_begin = static_cast<uint32_t>(ids.size()),
                                 .depth = static_cast<uint16_t>(i + 1),
                                 .byte = static_cast<uint8_t>(token[i])});
            }
            ids.push_back(id);
        }
        leave(path, 0);
    }

    // Ends the nodes of `path` behind the first `depth`.
    void leave(std::vector<uint32_t>& path, size_t depth) {
        for (; path.size() > depth; path.pop_back()) {
            Node& node = nodes[path.back()];
            node.skip = static_cast<uint32_t>(nodes.size());
            const auto below = std::span(ids).subspan(node.tokens_begin);
            node.is_plain = std::all_of(below.begin(), below.end(), [&](uint32_t id) {
                return (plain[id / 64] >> (id % 64) & 1) != 0;
            });
        }
    }
};

size_t VocabularyTrie::num_plain_longer_than(size_t count) const {
    const auto end = std::partition_point(by_length_.begin(), by_length_.end(), [&](uint32_t id) {
        return num_characters(bytes_of(id)) > count;
    });
    return static_cast<size_t>(end - by_length_.begin());
}

bool VocabularyTrie::is_plain_text(std::string_view bytes) {
    const auto has_meaning = [](char byte) {
        return static_cast<uint8_t>(byte) < 0x20 || byte == '"' || byte == '\\';
    };
    return !bytes.empty() && std::none_of(bytes.begin(), bytes.end(), has_meaning) &&
           is_valid_utf8(bytes) && num_characters(bytes) <= kPlainCharactersMax;
}

VocabularyTrie::VocabularyTrie(std::span<const std::string> token_bytes) {
    AFD_ASSERT(token_bytes.size() <= kTokensMax, "%zu tokens", token_bytes.size());
    Builder parts(token_bytes);
    parts.add_nodes();
    Header header{.num_nodes = static_cast<uint32_t>(parts.nodes.size()),
                  .num_ids = static_cast<uint32_t>(parts.ids.size()),
                  .vocab_size = static_cast<uint32_t>(token_bytes.size()),
                  .num_bytes = static_cast<uint32_t>(parts.bytes.size()),
                  .num_plain = static_cast<uint32_t>(parts.by_length.size())};
    AFD_ASSERT(header.needed_bytes() <= kImageBytesMax, "%zu tokens", token_bytes.size());
    header.total_bytes = static_cast<uint32_t>(header.needed_bytes());
    // Words, so that it begins at a multiple of 8.
    const auto memory = std::make_shared<std::vector<uint64_t>>((header.total_bytes + 7) / 8);
    auto* const begin = reinterpret_cast<std::byte*>(memory->data());
    std::byte* at = begin;
    const auto put = [&at](const auto& list) {
        const size_t size = list.size() * sizeof(list[0]);
        if (size > 0) std::memcpy(at, list.data(), size);
        at += size;
    };
    put(std::span(&header, 1));
    put(parts.nodes);
    put(parts.ids);
    put(parts.starts);
    put(parts.by_length);
    at = begin + sizeof(Header) + header.fours_bytes();
    put(parts.plain);
    put(parts.bytes);
    AFD_ASSERT(
        take_parts({begin, header.total_bytes}), "an image of %zu bytes", memory->size() * 8);
    owner_ = memory;
    find_long_tokens();
}

Result<VocabularyTrie> VocabularyTrie::read(std::span<const std::byte> image,
                                            std::shared_ptr<const void> owner) {
    VocabularyTrie trie;
    if (!trie.take_parts(image)) {
        return data_loss("the image of the vocabulary has {} bytes, which its header contradicts",
                         with(image.size()));
    }
    AFD_TRY(trie.check());
    trie.find_long_tokens();
    trie.owner_ = std::move(owner);
    return trie;
}

void VocabularyTrie::find_long_tokens() {
    for (uint32_t id = 0; id < vocab_size(); ++id) {
        // No walk comes to the very long ones.
        const size_t size = bytes_of(id).size();
        if (size > ByteProgram::kShortBytes && size <= kTokenBytesMax) {
            long_tokens_.push_back({.id = id});
        }
    }
    std::stable_sort(long_tokens_.begin(), long_tokens_.end(), [&](LongToken a, LongToken b) {
        return bytes_of(a.id) < bytes_of(b.id);
    });
    std::string_view before;
    for (LongToken& token : long_tokens_) {
        const std::string_view bytes = bytes_of(token.id);
        const auto end = std::ranges::mismatch(before, bytes).in2;
        token.num_shared = static_cast<uint32_t>(end - bytes.begin());
        before = bytes;
    }
}

bool VocabularyTrie::take_parts(std::span<const std::byte> image) {
    Header header;
    if (image.size() < sizeof(header) || image.size() > kImageBytesMax) return false;
    std::memcpy(&header, image.data(), sizeof(header));
    if (header.magic != Header::kMagic || header.vocab_size > kTokensMax ||
        header.total_bytes != image.size() || header.needed_bytes() != image.size()) {
        return false;
    }
    const std::byte* at = image.data() + sizeof(header);
    nodes_ = {reinterpret_cast<const Node*>(at), header.num_nodes};
    at += nodes_.size_bytes();
    ids_ = {reinterpret_cast<const uint32_t*>(at), header.num_ids};
    at += ids_.size_bytes();
    starts_ = {reinterpret_cast<const uint32_t*>(at), size_t{header.vocab_size} + 1};
    at += starts_.size_bytes();
    by_length_ = {reinterpret_cast<const uint32_t*>(at), header.num_plain};
    at = image.data() + sizeof(header) + header.fours_bytes();
    plain_ = {reinterpret_cast<const uint64_t*>(at), header.num_words()};
    at += plain_.size_bytes();
    bytes_ = {reinterpret_cast<const char*>(at), header.num_bytes};
    image_ = image;
    return true;
}

Result<> VocabularyTrie::check() const {
    // What a walk and a look-up rely on; which token has which bytes is not theirs to judge.
    for (size_t id = 0; id < starts_.size(); ++id) {
        const bool is_ascending = id == 0 ? starts_[0] == 0 : starts_[id - 1] <= starts_[id];
        if (is_ascending && starts_[id] <= bytes_.size()) continue;
        return data_loss("the bytes of token {} of the vocabulary begin at {}",
                         with(id, starts_[id]));
    }
    for (const std::span<const uint32_t> list : {ids_, by_length_}) {
        for (const uint32_t id : list) {
            if (id < vocab_size()) continue;
            return data_loss("the vocabulary of {} tokens has a token {}", with(vocab_size(), id));
        }
    }
    // A mask has a bit for each token, and none behind.
    const size_t num_spare = 64 * plain_.size() - vocab_size();
    if (num_spare > 0 && plain_.back() >> (64 - num_spare) != 0) {
        return data_loss("the vocabulary's mask has more than {} tokens", with(vocab_size()));
    }
    size_t depth_before = 0;
    uint32_t tokens_before = 0;
    for (size_t i = 0; i < nodes_.size(); ++i) {
        const Node& node = nodes_[i];
        const bool is_right = node.skip > i && node.skip <= nodes_.size() && node.depth >= 1 &&
                              node.depth <= depth_before + 1 && node.depth <= kTokenBytesMax &&
                              node.tokens_begin >= tokens_before &&
                              node.tokens_begin <= ids_.size();
        if (!is_right) {
            return data_loss("node {} of the vocabulary has skip {}, depth {}, tokens from {}",
                             with(i, node.skip, node.depth, node.tokens_begin));
        }
        depth_before = node.depth;
        tokens_before = node.tokens_begin;
    }
    return {};
}

}  // namespace afd::model
