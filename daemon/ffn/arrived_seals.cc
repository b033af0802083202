// SPDX-License-Identifier: Apache-2.0
#include "daemon/ffn/arrived_seals.h"

#include <algorithm>
#include <span>

#include "daemon/program/logging.h"
#include "ops/tensor/row_tasks.h"
#include "schedule/layout/row_checksum.h"
#include "schedule/wait/adaptive_wait.h"

namespace afd::daemon {

ArrivedSeals::ArrivedSeals(const schedule::ReturnTransport& transport,
                           size_t sent_bytes,
                           size_t rows_max)
    : transport_(transport), sent_bytes_(sent_bytes), intact_(rows_max) {}

void ArrivedSeals::look(const ExpertBatch& batch, ops::Parallel& parallel) {
    const auto rows = std::as_bytes(std::span(batch.x));
    const auto look = [&](size_t first, size_t last, unsigned) {
        for (size_t i = first; i < last; ++i) {
            const std::byte* arrived =
                transport_.token_row(static_cast<uint32_t>(batch.session_ids[i]),
                                     static_cast<uint32_t>(batch.micro_batch_ids[i]),
                                     static_cast<uint32_t>(batch.token_ids[i]),
                                     static_cast<uint32_t>(batch.row_slots()[i]));
            const auto row = batch.sent_rows.empty() ? rows.subspan(i * sent_bytes_, sent_bytes_)
                                                     : std::span(batch.sent_rows[i], sent_bytes_);
            const schedule::RowState state = schedule::look_at_row(row, arrived + sent_bytes_);
            intact_[i] = state == schedule::RowState::kIntact ? 1 : 0;
        }
    };
    ops::for_rows(parallel, batch.num_rows, sent_bytes_ / ops::kCopiedBytesPerElement, look);
    report(batch);
}

void ArrivedSeals::report(const ExpertBatch& batch) {
    const auto end = intact_.begin() + static_cast<ptrdiff_t>(batch.num_rows);
    const auto bad = std::find(intact_.begin(), end, 0);
    if (bad == end) return;
    const auto num_unsaid = warnings_.take(schedule::steady_now_us() / 1000);
    if (!num_unsaid) return;
    const auto i = static_cast<size_t>(bad - intact_.begin());
    log::warn(
        "the row of token {}, slot {} in micro-batch {} of attention worker {} was "
        "corrupted on its way here ({} of {} rows of the pass); it is sent again{}",
        batch.token_ids[i],
        batch.row_slots()[i],
        batch.micro_batch_ids[i],
        batch.session_ids[i],
        std::count(bad, end, 0),
        batch.num_rows,
        LogLimit::more(*num_unsaid));
}

}  // namespace afd::daemon
