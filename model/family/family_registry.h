// SPDX-License-Identifier: Apache-2.0
#pragma once

// The families of models that this process can load: those of this folder, and what was registered
// beside them.

#include <string_view>
#include <vector>

#include "model/family/family.h"

namespace afd::model {

// Those of this folder first. Thread-safe.
std::vector<Family> families();

// Adds a family from elsewhere, before the first model of it is opened. The views in it live as
// long as the process. REQUIRES: no other family has its model_type or architecture. Thread-safe.
void register_family(const Family& family);

}  // namespace afd::model
