// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the HTTP front end is opened with: who may use it, and the model in its words.

#include <memory>
#include <string>

#include "daemon/config/config.h"
#include "daemon/config/listen_address.h"
#include "daemon/gateway/session/input_budget.h"
#include "daemon/http/http_services.h"
#include "daemon/instance/instance_setup.h"

namespace afd::daemon {

// The model as HTTP clients and metrics name it: http_model, or the last part of its directory.
std::string served_model_name(const Config& config, const std::string& directory);

// Loads the keys of the file http_keys and of AFD_API_KEY. Errors: those of ApiKeys::load().
Result<ApiKeys> load_api_keys(const Config& config);

// That who can reach `http` needs a key, or may do without. REQUIRES: `config` has `http`.
// Errors: kInvalidArgument and those of ApiKeys::load().
Result<> check_http(const Config& config);

// REQUIRES: `loop`, `setup` and `texts` outlive the services.
// Errors: kInvalidArgument and those of ApiKeys::load().
Result<std::shared_ptr<HttpServices>> make_http_services(EventLoop& loop,
                                                         const Config& config,
                                                         const ListenAddress& address,
                                                         InstanceSetup& setup,
                                                         TextThread& texts,
                                                         std::shared_ptr<InputBudget> budget);

}  // namespace afd::daemon
