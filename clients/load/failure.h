// SPDX-License-Identifier: Apache-2.0
#pragma once

// Why a request of a load run failed.

#include <string>
#include <utility>

#include "proto/status.h"

namespace afd::client {

struct Failure {
    // The same for failures of one cause: they are counted and shown together. clients/README.md
    // lists those of HTTP.
    std::string kind;
    afd::Error error;

    // Of the cause that the error's code names.
    static Failure of(afd::Error error) {
        std::string kind(code_name(error.code));
        return {std::move(kind), std::move(error)};
    }
};

}  // namespace afd::client
