// SPDX-License-Identifier: Apache-2.0
#include "model/weight_cache/model_digest.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "model/weight_cache/checksum.h"
#include "model/weight_cache/file_lock.h"
#include "model/weight_cache/sealed_file.h"
#include "model/weight_cache/weight_cache.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

// Of the way in which a digest is computed: another one gives other numbers.
constexpr int kDigestRevision = 1;
// Long enough for any disk, and short enough that several threads share a tensor.
constexpr uint64_t kPieceBytes = uint64_t{4} << 20;

using DigestBytes = std::array<std::byte, sizeof(uint64_t)>;

uint64_t checksum_of(std::string_view text) {
    return Checksum::of(std::as_bytes(std::span(text)));
}

std::string hex(uint64_t number) {
    return fmt::format("{:016x}", number);
}

std::string kept_name(const std::string& stamps) {
    return hex(checksum_of(stamps)) + ".digest";
}

std::string kept_key(const std::string& stamps) {
    return fmt::format("digest of the files {}", kept_name(stamps));
}

constexpr std::array<size_t, 1> kKeptBytes = {sizeof(DigestBytes)};

// Nothing: there is none, or none that is sound.
std::optional<uint64_t> find_kept(const std::string& folder, const std::string& stamps) {
    const std::string path = folder + "/" + kept_name(stamps);
    const auto file = SealedFile::open(path, kept_key(stamps), kKeptBytes);
    if (!file.ok() || !file.value().verify(0).ok()) return std::nullopt;
    uint64_t digest = 0;
    std::memcpy(&digest, file.value().block(0).data(), sizeof(digest));
    return digest;
}

}  // namespace

struct ModelDigest::Piece {
    const SafetensorsFile* file = nullptr;
    const TensorInfo* tensor = nullptr;
    uint64_t begin = 0;  // In the file.
    uint64_t bytes = 0;
    uint64_t checksum = 0;
};

ModelDigest::ModelDigest(const TensorFiles& tensors,
                         std::string config_text,
                         std::string cache_directory)
    : tensors_(tensors),
      config_text_(std::move(config_text)),
      cache_directory_(std::move(cache_directory)),
      total_bytes_(tensors.total_bytes()) {}

Result<std::string> ModelDigest::compute(unsigned num_threads) {
    AFD_ASSIGN(const std::string before, stamps());
    if (!cache_directory_.empty()) {
        // Who else can write there could say that any weights are the right ones.
        const Result<std::string> folder = digests_folder();
        if (!folder.ok()) why_not_kept_ = folder.error().message;
        if (const auto kept = folder.ok() ? find_kept(folder.value(), before) : std::nullopt) {
            return hex(*kept);
        }
    }
    std::vector<Piece> all = pieces();
    AFD_TRY(read(all, num_threads));
    const uint64_t digest = combine(all);
    AFD_ASSIGN(const std::string after, stamps());
    if (cache_directory_.empty()) {
        why_not_kept_ = "weight_cache is off";
    } else if (before != after) {
        why_not_kept_ = "a file of the weights changed while it was read";
    } else if (why_not_kept_.empty()) {
        const Result<> kept = keep(before, digest);
        if (!kept.ok()) why_not_kept_ = kept.error().message;
    }
    return hex(digest);
}

// All that the digest depends on, without a look at the bytes of tensors.
Result<std::string> ModelDigest::stamps() const {
    std::string text = fmt::format("revision {}\n{}\n", kDigestRevision, config_text_);
    for (const SafetensorsFile& file : tensors_.files()) {
        AFD_ASSIGN(const std::string stamp, file.stamp());
        text += file.path() + "\n" + stamp + "\n";
    }
    return text;
}

// In the order of the files and of the bytes in each: whoever takes one after the other reads as
// disks are fastest.
std::vector<ModelDigest::Piece> ModelDigest::pieces() const {
    std::vector<Piece> all;
    for (const SafetensorsFile& file : tensors_.files()) {
        for (const TensorInfo& tensor : file.tensors()) {
            // One of another part than the text model.
            if (tensors_.find(tensor.name) != &tensor) continue;
            for (uint64_t at = tensor.begin; at < tensor.end; at += kPieceBytes) {
                all.push_back({.file = &file,
                               .tensor = &tensor,
                               .begin = at,
                               .bytes = std::min(kPieceBytes, tensor.end - at)});
            }
        }
    }
    return all;
}

Result<> ModelDigest::read(std::vector<Piece>& pieces, unsigned num_threads) {
    std::atomic<size_t> next{0};
    std::mutex mutex;
    std::optional<Error> problem;
    const auto work = [&] {
        std::vector<std::byte> buffer(kPieceBytes);
        while (!is_stopped()) {
            // Relaxed: partners are the other threads. Each index is one thread's, and what it
            // makes of the piece is seen after join().
            const size_t index = next.fetch_add(1, std::memory_order_relaxed);
            if (index >= pieces.size()) return;
            Piece& piece = pieces[index];
            const auto bytes = std::span(buffer).first(piece.bytes);
            const Result<> done = piece.file->read(piece.begin, bytes);
            if (!done.ok()) {
                const std::lock_guard lock(mutex);
                if (!problem) problem = done.error();
                // Relaxed: partners are the looks of other threads; a late one costs only a read.
                next.store(pieces.size(), std::memory_order_relaxed);
                return;
            }
            piece.checksum = Checksum::of(bytes);
            // Relaxed: partner is bytes_read().
            bytes_read_.fetch_add(piece.bytes, std::memory_order_relaxed);
        }
    };
    std::vector<std::thread> helpers;
    const size_t num_useful = std::min<size_t>(num_threads, pieces.size());
    try {
        while (helpers.size() + 1 < num_useful) helpers.emplace_back(work);
    } catch (const std::system_error&) {
        // Those that the kernel gave do it, too.
    }
    work();
    for (std::thread& helper : helpers) helper.join();
    if (problem) return *problem;
    if (is_stopped()) {
        return cancelled("reading the weights was stopped");
    }
    return {};
}

// By name, so that the shards do not count. Words and no text: one that changes changes the sum.
uint64_t ModelDigest::combine(const std::vector<Piece>& pieces) const {
    std::map<std::string_view, std::vector<uint64_t>> by_name;
    for (const TensorInfo* tensor : tensors_.list()) {
        const std::string what =
            fmt::format("{} {}", storage_type_name(tensor->dtype), shape_text(tensor->shape));
        by_name[tensor->name] = {checksum_of(tensor->name), checksum_of(what)};
    }
    for (const Piece& piece : pieces) by_name[piece.tensor->name].push_back(piece.checksum);
    std::vector<uint64_t> words = {checksum_of(config_text_)};
    for (const auto& [name, sums] : by_name) words.insert(words.end(), sums.begin(), sums.end());
    return Checksum::of(std::as_bytes(std::span(words)));
}

// Of this user alone, as the cache itself.
Result<std::string> ModelDigest::digests_folder() const {
    AFD_ASSIGN(const WeightCache cache, WeightCache::open(cache_directory_));
    return cache.folder("digests");
}

Result<> ModelDigest::keep(const std::string& stamps, uint64_t digest) const {
    AFD_ASSIGN(const std::string folder, digests_folder());
    const std::string path = folder + "/" + kept_name(stamps);
    AFD_ASSIGN(const auto lock, FileLock::try_acquire(path + ".lock"));
    // Another process writes the same one.
    if (!lock) return {};
    AFD_ASSIGN(auto writer, SealedFileWriter::create(path, kept_key(stamps), kKeptBytes));
    DigestBytes bytes;
    std::memcpy(bytes.data(), &digest, sizeof(digest));
    AFD_TRY(writer.write(0, bytes));
    return writer.seal();
}

}  // namespace afd::model
