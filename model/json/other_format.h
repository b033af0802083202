// SPDX-License-Identifier: Apache-2.0
#pragma once

// What stands in a model directory in place of a file of another format: downloads and clones leave
// it there.

#include <string>
#include <string_view>

namespace afd::model {

// "this is a pointer of Git LFS, no WANTED; ..." with what to do, where a file that begins with
// `text` is known as something else; empty: it is not. Eight bytes are enough.
std::string other_format_text(std::string_view text, std::string_view wanted);

}  // namespace afd::model
