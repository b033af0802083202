// SPDX-License-Identifier: Apache-2.0
#pragma once

// The normalization forms of Unicode (annex 15) and lower case, on UTF-8.

#include <string>
#include <string_view>

namespace afd::model {

struct UnicodeForm {
    bool is_compatible = false;  // NFKC and NFKD.
    bool is_composed = false;    // NFC and NFKC.
};

// REQUIRES: valid UTF-8. Cost: characters that are as they must be are copied; the others are
// decomposed, sorted and composed from one safe boundary to the next.
std::string in_form(std::string_view text, UnicodeForm form);

// Each character on its own, without regard to what stands beside it. REQUIRES: valid UTF-8.
std::string in_lower_case(std::string_view text);

}  // namespace afd::model
