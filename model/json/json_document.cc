// SPDX-License-Identifier: Apache-2.0
#include "model/json/json_document.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/json/json_builder.h"
#include "model/json/other_format.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using Json = nlohmann::json;

Error open_error(const std::string& path, int error) {
    const Code code = error == ENOENT || error == ENOTDIR ? Code::kNotFound
                      : error == EACCES                   ? Code::kPermissionDenied
                                                          : Code::kUnavailable;
    return Error{code, path + ": " + std::strerror(error)};
}

Result<std::string> read_descriptor(int fd, const std::string& path, size_t bytes_max) {
    struct stat status {};
    if (::fstat(fd, &status) != 0) return open_error(path, errno);
    if (!S_ISREG(status.st_mode)) return data_loss("{}: not a regular file", with(path));
    const auto size = static_cast<uint64_t>(status.st_size);
    // By the size and before the memory is reserved.
    if (size > bytes_max) {
        return data_loss("{}: {} bytes; at most {} are accepted", with(path, size, bytes_max));
    }
    std::string text(size, '\0');
    size_t done = 0;
    while (done < size) {
        const ssize_t got = ::read(fd, text.data() + done, size - done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return open_error(path, errno);
        if (got == 0) return data_loss("{}: became shorter while it was read", with(path));
        done += static_cast<size_t>(got);
    }
    return text;
}

}  // namespace

Result<Json> parse_json(std::string_view text, const std::string& origin) {
    auto json = parse_json_text(text, origin);
    if (json.ok()) return json;
    const std::string other = other_format_text(text, "JSON");
    if (!other.empty()) return data_loss("{}: {}", with(origin, other));
    return json;
}

Result<Json> parse_json_text(std::string_view text, const std::string& origin) {
    JsonBuilder<Json> builder({.depth = kJsonDepthMax, .refuses_repeated_keys = true});
    if (!Json::sax_parse(text.begin(), text.end(), &builder, Json::input_format_t::json)) {
        return data_loss("{}: {}", with(origin, builder.problem()));
    }
    return builder.take();
}

Result<std::string> read_text_file(const std::string& path, size_t bytes_max) {
    // O_NONBLOCK, because opening a FIFO would wait for its writer for ever; it is refused below.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return open_error(path, errno);
    auto text = read_descriptor(fd, path, bytes_max);
    ::close(fd);
    return text;
}

}  // namespace afd::model
