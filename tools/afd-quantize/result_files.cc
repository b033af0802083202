// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-quantize/result_files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "model/safetensors/file_error.h"
#include "model/safetensors/write_at.h"
#include "proto/check.h"
#include "tools/afd-quantize/size_text.h"

namespace afd::tools {
namespace {

Error failure(const std::string& path, int error) {
    return Error{model::file_error_code(error), path + ": writing: " + std::strerror(error)};
}

bool is_of_size(const std::string& path, uint64_t bytes) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
           static_cast<uint64_t>(status.st_size) == bytes;
}

Result<> write_all(int fd,
                   const std::string& path,
                   uint64_t offset,
                   std::span<const std::byte> bytes) {
    const int error = model::write_at(fd, offset, bytes);
    if (error != 0) return failure(path, error);
    return {};
}

}  // namespace

bool ResultFiles::exist(const QuantisePlan& plan, const std::string& directory) {
    for (size_t shard = 0; shard < plan.num_shards(); ++shard) {
        const std::string path = directory + "/" + plan.shard_name(shard);
        if (!is_of_size(path, plan.shard_bytes(shard))) return false;
    }
    return true;
}

Result<ResultFiles> ResultFiles::open(const QuantisePlan& plan,
                                      const std::string& directory,
                                      bool goes_on) {
    ResultFiles files(plan);
    for (size_t shard = 0; shard < plan.num_shards(); ++shard) {
        const Result<> opened = files.open_shard(directory, goes_on);
        if (opened.ok()) continue;
        // Room that was found for some of the shards is of no use without the rest.
        if (!goes_on) files.give_room_back();
        return opened.error();
    }
    return files;
}

Result<> ResultFiles::open_shard(const std::string& directory, bool goes_on) {
    const size_t shard = fds_.size();
    const std::string path = directory + "/" + plan_->shard_name(shard);
    paths_.push_back(path);
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return failure(path, errno);
    fds_.push_back(fd);
    if (!goes_on) AFD_TRY(make(shard, path));
    // In any case: an earlier run may have ended just before it.
    const std::string& prefix = plan_->shard_prefix(shard);
    return write_all(fd, path, 0, std::as_bytes(std::span(prefix)));
}

void ResultFiles::give_room_back() const {
    // A refusal says less than why there was no room.
    std::error_code ignored;
    for (size_t shard = 0; shard < fds_.size(); ++shard) {
        std::filesystem::resize_file(paths_[shard], 0, ignored);
    }
}

ResultFiles::~ResultFiles() {
    for (const int fd : fds_) ::close(fd);
}

Result<> ResultFiles::make(size_t shard, const std::string& path) {
    const uint64_t bytes = plan_->shard_bytes(shard);
    // Emptied first: what is there may be longer.
    const int problem = ::ftruncate(fds_[shard], 0) != 0
                            ? errno
                            : ::posix_fallocate(fds_[shard], 0, static_cast<off_t>(bytes));
    if (problem == 0) return {};
    Error error = failure(path, problem);
    if (error.code == Code::kResourceExhausted) {
        error.message += fmt::format(
            "; the weights need {} in all. Free as much, raise the limit of your files, or give "
            "--out a place on another disk",
            size_text(plan_->result_bytes()));
    }
    return error;
}

Result<> ResultFiles::write(size_t tensor,
                            uint64_t offset,
                            std::span<const std::byte> bytes) const {
    const PlannedTensor& planned = plan_->tensors()[tensor];
    AFD_ASSERT(planned.place.begin + offset + bytes.size() <= planned.place.end,
               "%s: %zu bytes at %zu",
               planned.place.name.c_str(),
               bytes.size(),
               static_cast<size_t>(offset));
    return write_all(
        fds_[planned.shard], paths_[planned.shard], planned.place.begin + offset, bytes);
}

Result<> ResultFiles::sync() const {
    for (size_t shard = 0; shard < fds_.size(); ++shard) {
        if (::fdatasync(fds_[shard]) != 0) return failure(paths_[shard], errno);
    }
    return {};
}

}  // namespace afd::tools
