// SPDX-License-Identifier: Apache-2.0
#include "model/checkpoint/json_document.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "proto/failure.h"

namespace afd::model {
namespace {

using Json = nlohmann::json;

// Builds the document and stops at the first repeated key or at too deep a nesting; the library's
// own builder silently keeps the last of equal keys.
class StrictBuilder {
  public:
    bool null() { return put(Json()); }
    bool boolean(bool value) { return put(Json(value)); }
    bool number_integer(Json::number_integer_t value) { return put(Json(value)); }
    bool number_unsigned(Json::number_unsigned_t value) { return put(Json(value)); }
    bool number_float(Json::number_float_t value, const std::string&) { return put(Json(value)); }
    bool string(std::string& value) { return put(Json(std::move(value))); }
    bool binary(Json::binary_t& value) { return put(Json(std::move(value))); }

    bool start_object(std::size_t) { return open(Json::object()); }
    bool start_array(std::size_t) { return open(Json::array()); }
    bool end_object() { return close(); }
    bool end_array() { return close(); }

    bool key(std::string& name) {
        auto [at, is_new] = stack_.back()->get_ref<Json::object_t&>().try_emplace(name);
        if (!is_new) {
            problem_ = "the key \"" + name + "\" stands twice in one object";
            return false;
        }
        slot_ = &at->second;
        return true;
    }

    template <typename Exception>
    bool parse_error(std::size_t position, const std::string&, const Exception&) {
        problem_ = fmt::format("not valid JSON near byte {}", position);
        return false;
    }

    const std::string& problem() const { return problem_; }
    Json take() { return std::move(root_); }

  private:
    Json* place(Json value) {
        Json* target = &root_;
        if (!stack_.empty() && stack_.back()->is_array()) {
            auto& array = stack_.back()->get_ref<Json::array_t&>();
            array.push_back(std::move(value));
            return &array.back();
        }
        if (!stack_.empty()) target = slot_;
        *target = std::move(value);
        return target;
    }

    bool put(Json value) {
        place(std::move(value));
        return true;
    }

    bool open(Json value) {
        // The depth is the file's to choose, and whoever walks over the document recurses.
        if (stack_.size() == kJsonDepthMax) {
            problem_ = fmt::format("nested deeper than {} levels", kJsonDepthMax);
            return false;
        }
        stack_.push_back(place(std::move(value)));
        return true;
    }

    bool close() {
        stack_.pop_back();
        return true;
    }

    Json root_;
    Json* slot_ = nullptr;      // Where the value of the last key goes.
    std::vector<Json*> stack_;  // Open objects and arrays; a parent does not move while open.
    std::string problem_;
};

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
    StrictBuilder builder;
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
