// SPDX-License-Identifier: Apache-2.0
#pragma once

// HttpForm: an AnswerForm as the gateway keeps it, and as it goes to another afdd.

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/gateway/session/client_session.h"
#include "daemon/http/answer/answer_form.h"
#include "proto/status.h"

namespace afd::daemon {

class HttpForm final : public SessionForm {
  public:
    explicit HttpForm(std::shared_ptr<const AnswerForm> answer) : answer_(std::move(answer)) {}
    // What text() was. Errors: kDataLoss: it is of something that this program does not know.
    static Result<std::shared_ptr<const SessionForm>> read(std::string_view text);

    std::string text() const override;
    const std::shared_ptr<const AnswerForm>& answer() const { return answer_; }

  private:
    const std::shared_ptr<const AnswerForm> answer_;
};

}  // namespace afd::daemon
