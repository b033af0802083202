// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-quantize/result_directory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "model/safetensors/file_error.h"
#include "model/safetensors/safetensors_writer.h"
#include "model/safetensors/whole_file.h"

namespace afd::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kFolder = "/.unfinished";
constexpr const char* kLockFile = "/lock";
constexpr const char* kProgressFile = "/progress.json";
constexpr const char* kRangesFile = "/ranges.safetensors";
constexpr const char* kRangesTensor = "ranges";

Error not_empty(const std::string& path) {
    std::error_code error;
    // Whoever reads "remove it" may do so, and this may be the only copy of a model.
    if (fs::exists(path + "/config.json", error)) {
        return Error{Code::kAlreadyExists,
                     path + ": holds a whole model already; give --out a new name"};
    }
    return Error{Code::kAlreadyExists,
                 path + ": is not an empty directory; give --out a new name, or remove it"};
}

// Nothing is there but what an interrupted job leaves.
Result<> check_contents(const std::string& path) {
    std::error_code error;
    const bool is_begun = fs::exists(path + kFolder, error);
    const bool is_empty = fs::is_empty(path, error);
    if (!error && (is_begun || is_empty)) return {};
    return not_empty(path);
}

// What a directory holds.
Result<std::vector<fs::path>> entries_of(const std::string& directory) {
    std::error_code error;
    std::vector<fs::path> entries;
    // Not a range-for: its ++ throws.
    fs::directory_iterator at(directory, error);
    for (const fs::directory_iterator end; !error && at != end; at.increment(error)) {
        entries.push_back(at->path());
    }
    if (!error) return entries;
    return Error{model::file_error_code(error.value()),
                 directory + ": cannot be listed: " + error.message()};
}

// Removes the folder of a job that is done, the lock last: whoever gets a lock then finds a result
// without a job, and leaves it alone (check_no_others()).
Result<> remove_folder(const std::string& folder) {
    std::error_code error;
    fs::remove(folder + kProgressFile, error);
    AFD_ASSIGN(const std::vector<fs::path> entries, entries_of(folder));
    for (const fs::path& entry : entries) {
        if (!error && entry.filename() != kLockFile + 1) fs::remove_all(entry, error);
    }
    if (!error) fs::remove(folder + kLockFile, error);
    if (!error) fs::remove(folder, error);
    // Somebody may be in it again, who will remove it.
    if (!error || error == std::errc::directory_not_empty) return {};
    return Error{model::file_error_code(error.value()),
                 folder + ": cannot be removed: " + error.message()};
}

// The same by who holds the lock and found no job noted: beside other files that is what another
// run has finished meanwhile, and its folder goes, or a note that was damaged, and then nobody
// knows whose files they are. REQUIRES: the folder.
Result<> check_no_others(const std::string& path) {
    AFD_ASSIGN(const std::vector<fs::path> entries, entries_of(path));
    const bool has_others = std::ranges::any_of(
        entries, [](const fs::path& entry) { return entry.filename() != kFolder + 1; });
    if (!has_others) return {};
    std::error_code error;
    // Why it stays, if it does, says less than what it stays beside.
    if (!fs::exists(path + kFolder + kProgressFile, error)) {
        static_cast<void>(remove_folder(path + kFolder));
    }
    return not_empty(path);
}

Result<> make_folder(const std::string& path) {
    std::error_code error;
    fs::create_directories(path, error);
    if (!error) return {};
    return Error{model::file_error_code(error.value()),
                 path + ": cannot be created: " + error.message()};
}

// What a run that was killed was writing (model/safetensors/whole_file.h). REQUIRES: the lock.
Result<> remove_leftovers(const std::string& path) {
    AFD_ASSIGN(const std::vector<fs::path> entries, entries_of(path));
    std::error_code ignored;
    for (const fs::path& file : entries) {
        if (file.extension() == ".tmp") fs::remove(file, ignored);
    }
    return {};
}

Result<> sync(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const bool is_done = fd >= 0 && ::fsync(fd) == 0;
    const int problem = errno;
    if (fd >= 0) ::close(fd);
    if (is_done) return {};
    return Error{Code::kUnavailable, path + ": cannot be flushed: " + std::strerror(problem)};
}

// The files of a directory, and their names.
Result<> sync_all(const std::string& directory) {
    AFD_ASSIGN(const std::vector<fs::path> entries, entries_of(directory));
    std::error_code ignored;
    for (const fs::path& entry : entries) {
        if (fs::is_regular_file(entry, ignored)) AFD_TRY(sync(entry));
    }
    return sync(directory);
}

// Of this program's own making, but it may be cut off or edited: then nothing is known.
Json read_json(const std::string& path) {
    std::ifstream stream(path);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    Json json = Json::parse(text, nullptr, false);
    return json.is_object() ? json : Json::object();
}

template <typename T>
T value_or(const Json& json, const char* key, T otherwise) {
    const auto at = json.find(key);
    if (at == json.end()) return otherwise;
    if constexpr (std::is_same_v<T, std::string>) {
        return at->is_string() ? at->get<T>() : otherwise;
    } else {
        return at->is_number() ? at->get<T>() : otherwise;
    }
}

}  // namespace

Result<ResultDirectory> ResultDirectory::open(const std::string& path, const std::string& job) {
    AFD_TRY(make_folder(path));
    AFD_TRY(check_contents(path));
    AFD_TRY(make_folder(path + kFolder));
    AFD_ASSIGN(auto lock, model::FileLock::try_acquire(path + kFolder + kLockFile));
    if (!lock) {
        return Error{Code::kFailedPrecondition,
                     path + ": another afd-quantize is writing it; wait for it or stop it"};
    }
    Json found = read_json(path + kFolder + kProgressFile);
    const std::string other = value_or(found, "job", std::string());
    if (other.empty()) {
        AFD_TRY(check_no_others(path));
        // What a damaged note still says, and what was measured, may be of any job.
        found = Json::object();
        std::error_code ignored;
        fs::remove(path + kFolder + kRangesFile, ignored);
    } else if (other != job) {
        return Error{Code::kAlreadyExists,
                     fmt::format("{}: holds the beginnings of another job ({}; wanted: {}); give "
                                 "--out a new name, or remove it",
                                 path,
                                 other,
                                 job)};
    }
    AFD_TRY(remove_leftovers(path));
    ResultDirectory directory(path, job, std::move(*lock));
    directory.units_done_ = value_or(found, "units_done", uint64_t{0});
    directory.measured_text_ = value_or(found, "measured_text", std::string());
    directory.perplexity_ = {.value = value_or(found, "perplexity", 0.0),
                             .num_scored = value_or(found, "num_scored", size_t{0}),
                             .window = value_or(found, "window", size_t{0}),
                             .bits_per_byte = value_or(found, "bits_per_byte", 0.0)};
    AFD_TRY(directory.write_progress());
    return directory;
}

std::string ResultDirectory::scratch() const {
    return path_ + kFolder;
}

Result<> ResultDirectory::set_units_done(uint64_t units) {
    units_done_ = units;
    return write_progress();
}

std::optional<Perplexity> ResultDirectory::perplexity(const std::string& text_hash) const {
    if (text_hash != measured_text_ || perplexity_.num_scored == 0) return {};
    return perplexity_;
}

Result<> ResultDirectory::keep(const std::string& text_hash, const Perplexity& perplexity) {
    measured_text_ = text_hash;
    perplexity_ = perplexity;
    return write_progress();
}

std::optional<ChannelRanges> ResultDirectory::ranges(size_t num_layers, size_t hidden) const {
    const auto file = model::SafetensorsFile::open(scratch() + kRangesFile);
    if (!file.ok() || file.value().tensors().size() != 1) return {};
    const model::TensorInfo& tensor = file.value().tensors().front();
    const std::vector<uint64_t> shape = {num_layers, hidden};
    if (tensor.dtype != model::StorageType::kF32 || tensor.shape != shape) return {};
    ChannelRanges ranges(num_layers, std::vector<float>(hidden));
    for (size_t layer = 0; layer < num_layers; ++layer) {
        const auto row = std::as_writable_bytes(std::span(ranges[layer]));
        if (!file.value().read(tensor.begin + layer * row.size(), row).ok()) return {};
    }
    return ranges;
}

Result<> ResultDirectory::keep(const ChannelRanges& ranges) {
    std::vector<float> values;
    for (const auto& layer : ranges) values.insert(values.end(), layer.begin(), layer.end());
    const std::array tensors = {
        model::TensorToWrite{kRangesTensor,
                             model::StorageType::kF32,
                             {ranges.size(), ranges.empty() ? 0 : ranges.front().size()},
                             std::as_bytes(std::span(values))}};
    return model::write_safetensors(scratch() + kRangesFile, tensors);
}

Result<> ResultDirectory::write_progress() const {
    const Json progress = {{"job", job_},
                           {"units_done", units_done_},
                           {"measured_text", measured_text_},
                           {"perplexity", perplexity_.value},
                           {"num_scored", perplexity_.num_scored},
                           {"window", perplexity_.window},
                           {"bits_per_byte", perplexity_.bits_per_byte}};
    const std::string text = progress.dump() + "\n";
    return model::write_whole_file(scratch() + kProgressFile, std::as_bytes(std::span(text)));
}

Result<> ResultDirectory::finish() {
    AFD_TRY(sync_all(path_));
    return remove_folder(scratch());
}

}  // namespace afd::tools
