// SPDX-License-Identifier: Apache-2.0
#pragma once

// The parameters of a call that a model writes one by one, each between marks, and not as JSON.

#include <optional>
#include <string_view>

#include "model/chat/call/parameter_types.h"
#include "model/chat/message/chat_event.h"

namespace afd::model {

struct ParameterMarks {
    std::string_view begin;             // In front of a name,
    std::string_view name_end;          // behind it,
    std::string_view value_begin = {};  // in front of a value, where that is a mark of its own,
    std::string_view value_end;         // and behind it.
    bool has_lines = false;             // A line break stands at either end of a value.
};

// The call of `function`, with blanks around its name, and `text`, which is nothing but parameters
// and blanks. Of a name that comes twice the last value counts. A value is bare text: a `value_end`
// behind which neither `begin` nor the end of `text` comes is part of it. Where values have lines,
// a line that begins a parameter ends a value without any `value_end`. Nothing: the name is none,
// `text` is something else, or beyond a limit of ordered_json.h.
std::optional<ChatEvent> read_parameter_call(std::string_view function,
                                             std::string_view text,
                                             const ParameterMarks& marks,
                                             const ParameterTypes& types);

}  // namespace afd::model
