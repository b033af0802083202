// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/session/kept_stream.h"

#include <fmt/core.h>

#include <utility>

#include "proto/check.h"

namespace afd::daemon {

KeptStream::KeptStream(uint64_t flight,
                       const ClientSession& client,
                       client::Accepted accepted,
                       size_t bytes_max,
                       std::shared_ptr<Totals> totals)
    : flight_(flight),
      identity_{client.identity().account, client.identity().name + ", which is gone"},
      form_(client.form()),
      accepted_(std::move(accepted)),
      bytes_max_(bytes_max),
      totals_(std::move(totals)),
      bytes_(accepted_.ByteSizeLong()) {
    totals_->bytes += bytes_;
}

KeptStream::KeptStream(const HandedStream& stream,
                       std::shared_ptr<const SessionForm> form,
                       std::shared_ptr<Totals> totals)
    : flight_(kNoFlight),
      identity_{stream.account, stream.name},
      form_(std::move(form)),
      accepted_(stream.accepted),
      bytes_max_(0),
      totals_(std::move(totals)),
      first_(stream.first_place),
      num_tokens_gone_(stream.num_tokens_before),
      end_(stream.end),
      bytes_(accepted_.ByteSizeLong()) {
    totals_->bytes += bytes_;
    totals_->has_end = true;
    for (const std::string& bytes : stream.chunks) {
        client::Chunk chunk;
        // What is no Chunk is an empty one: places stay what they are.
        if (chunk.ParseFromString(bytes)) {
            add(bytes, chunk.num_tokens());
        } else {
            add({}, 0);
        }
    }
}

HandedStream KeptStream::handed() const {
    AFD_ASSERT(is_over(), "the request of %s is not over", identity_.name.c_str());
    HandedStream stream;
    stream.account = identity_.account;
    stream.name = identity_.name;
    stream.accepted = accepted_;
    for (const Kept& kept : chunks_) stream.chunks.push_back(kept.chunk);
    stream.end = *end_;
    stream.first_place = first_;
    stream.num_tokens_before = num_tokens_gone_;
    if (form_ != nullptr) stream.form = form_->text();
    return stream;
}

void KeptStream::add(std::string chunk, uint32_t num_tokens) {
    const Kept& kept = chunks_.emplace_back(Kept{std::move(chunk), num_tokens});
    bytes_ += kept.bytes();
    totals_->bytes += kept.bytes();
}

void KeptStream::keep(const client::Response& response) {
    if (is_over()) return;
    if (!response.has_chunk()) {
        end_ = response;
        totals_->has_end = true;
        return;
    }
    add(response.chunk().SerializeAsString(), response.chunk().num_tokens());
    if (is_attached_) {
        while (bytes_ > bytes_max_ && !chunks_.empty()) drop_oldest();
    } else {
        unheard_bytes_ += chunks_.back().bytes();
    }
}

void KeptStream::drop_oldest() {
    const size_t bytes = chunks_.front().bytes();
    num_tokens_gone_ += chunks_.front().num_tokens;
    chunks_.pop_front();
    ++first_;
    bytes_ -= bytes;
    totals_->bytes -= bytes;
}

Result<client::Accepted> KeptStream::resume(uint64_t num_received) const {
    if (num_received > num_chunks()) {
        return Error{Code::kInvalidArgument,
                     fmt::format("received_chunks = {}: the request has made {} so far",
                                 num_received,
                                 num_chunks())};
    }
    if (num_received < first_) {
        return Error{Code::kInvalidArgument,
                     fmt::format("received_chunks = {}: those before {} are kept no longer "
                                 "(output_buffer_kib)",
                                 num_received,
                                 first_)};
    }
    uint64_t num_tokens = num_tokens_gone_;
    for (uint64_t place = first_; place < num_received; ++place) {
        num_tokens += chunks_[place - first_].num_tokens;
    }
    client::Accepted accepted = accepted_;
    accepted.set_num_received_tokens(static_cast<uint32_t>(num_tokens));
    accepted.set_num_answers(num_chunks() + (is_over() ? 1 : 0));
    return accepted;
}

std::optional<client::Response> KeptStream::answer(uint64_t place) const {
    AFD_ASSERT(place >= first_,
               "place %llu of a stream kept from %llu on",
               static_cast<unsigned long long>(place),
               static_cast<unsigned long long>(first_));
    if (place >= num_chunks()) return end_;
    client::Response response;
    const std::string& chunk = chunks_[place - first_].chunk;
    const bool is_parsed = response.mutable_chunk()->ParseFromString(chunk);
    AFD_ASSERT(is_parsed, "a kept chunk of %zu bytes does not parse", chunk.size());
    return response;
}

void KeptStream::pass(uint64_t place) {
    if (place < heard_ || place >= num_chunks()) return;
    unheard_bytes_ -= chunks_[place - first_].bytes();
    heard_ = place + 1;
}

void KeptStream::attach() {
    is_attached_ = true;
    unheard_bytes_ = 0;
}

void KeptStream::detach() {
    // Who resumes and breaks again has heard what it was told: that does not count anew.
    if (!std::exchange(is_attached_, false)) return;
    heard_ = num_chunks();
}

}  // namespace afd::daemon
