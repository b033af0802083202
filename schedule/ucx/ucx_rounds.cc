// SPDX-License-Identifier: Apache-2.0
#include "schedule/ucx/ucx_rounds.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "proto/check.h"
#include "proto/failure.h"
#include "schedule/shared_memory/memory_room.h"

namespace afd::schedule {
namespace {

template <typename Words>
constexpr bool kIsOfSession = std::is_same_v<Words, TwoPhaseSessionWords>;

template <typename Words>
constexpr size_t kLineBytesSeen = Words::kNumSeen * sizeof(int32_t);

template <typename Words>
constexpr auto published_words() {
    if constexpr (kIsOfSession<Words>) {
        return std::array{&Words::offer, &Words::sent, &Words::combined, &Words::closed};
    } else {
        return std::array{&Words::granted, &Words::returned, &Words::acknowledged};
    }
}

template <typename Words>
uint64_t stripe_bytes(const TwoPhaseControlLayout& layout) {
    return kIsOfSession<Words> ? layout.session_stripe_bytes : layout.rank_stripe_bytes;
}

template <typename Words>
std::vector<Words*> words_in(const UcxMemory& memory,
                             const TwoPhaseControlLayout& layout,
                             uint32_t num_peers) {
    std::vector<Words*> words;
    for (uint32_t peer = 0; peer < num_peers; ++peer) {
        void* stripe = memory.get() + peer * stripe_bytes<Words>(layout);
        words.push_back(static_cast<Words*>(stripe));
    }
    return words;
}

template <typename Own, typename Peer>
class RoundsTransport final : public TwoPhaseTransport<Own, Peer> {
  public:
    using Base = TwoPhaseTransport<Own, Peer>;
    using Base::publish;

    RoundsTransport(UcxRounds<Own, Peer>& rounds,
                    const TwoPhaseControlLayout& layout,
                    uint32_t index,
                    const std::vector<Own*>& own,
                    const std::vector<Peer*>& mirrors)
        : Base(layout, index, own, {mirrors.begin(), mirrors.end()}), rounds_(rounds) {}

    void publish(uint32_t peer,
                 typename Base::Word word,
                 int32_t value,
                 size_t table_bytes) override {
        rounds_.publish(peer, word, value, table_bytes);
    }
    uint32_t blocks_ahead() const override { return UcxRounds<Own, Peer>::kBlocksAhead; }
    Result<TwoPhaseRoundMemory> open(uint32_t peer,
                                     int32_t round,
                                     const TwoPhaseSizes& sizes) override {
        return rounds_.open(peer, round, sizes);
    }
    void put(uint32_t peer, uint64_t offset, uint64_t bytes) override {
        rounds_.put(peer, offset, bytes);
    }
    void close(uint32_t peer, int32_t round) override { rounds_.close(peer, round); }

  private:
    UcxRounds<Own, Peer>& rounds_;
};

}  // namespace

template <typename Own, typename Peer>
auto UcxRounds<Own, Peer>::make_words(const Geometry& geometry) -> Result<Words> {
    const auto layout = TwoPhaseControlLayout::compute(geometry);
    const uint32_t num_peers = kIsSession ? layout.num_ranks : layout.num_sessions;
    Words words;
    AFD_ASSIGN(words.own, make_ucx_memory(num_peers * stripe_bytes<Own>(layout)));
    AFD_ASSIGN(words.mirrors, make_ucx_memory(num_peers * stripe_bytes<Peer>(layout)));
    return words;
}

template <typename Own, typename Peer>
UcxRounds<Own, Peer>::UcxRounds(UcxEnd& end, uint32_t index, const Geometry& geometry, Words words)
    : end_(&end),
      index_(index),
      layout_(TwoPhaseControlLayout::compute(geometry)),
      words_(std::move(words)) {
    const uint32_t num_peers = kIsSession ? layout_.num_ranks : layout_.num_sessions;
    own_ = words_in<Own>(words_.own, layout_, num_peers);
    mirrors_ = words_in<Peer>(words_.mirrors, layout_, num_peers);
    links_.resize(num_peers);
}

template <typename Own, typename Peer>
auto UcxRounds<Own, Peer>::make_transport() -> std::unique_ptr<Transport> {
    return std::make_unique<RoundsTransport<Own, Peer>>(*this, layout_, index_, own_, mirrors_);
}

template <typename Own, typename Peer>
void UcxRounds<Own, Peer>::on_open(uint32_t peer) {
    Link& link = links_[peer];
    link.num_sent = 0;
    link.num_arrived = 0;
    link.early.clear();
}

template <typename Own, typename Peer>
Result<TwoPhaseRoundMemory> UcxRounds<Own, Peer>::open(uint32_t peer,
                                                       int32_t round,
                                                       const TwoPhaseSizes& sizes) {
    Round opened;
    opened.number = round;
    opened.sent_bytes = kIsSession ? sizes.receive_bytes : sizes.return_bytes;
    opened.received_bytes = kIsSession ? sizes.return_bytes : sizes.receive_bytes;
    // Both below the bounds of a call (two_phase_sizes_max): no wrap.
    AFD_TRY(check_memory_room("a two-phase round",
                              opened.sent_bytes + opened.received_bytes,
                              "lower prefill_tokens_max or two_phase_memory_max"));
    if (opened.sent_bytes > 0) {
        AFD_ASSIGN(opened.sent, make_ucx_memory(opened.sent_bytes));
    }
    if (opened.received_bytes > 0) {
        AFD_ASSIGN(opened.received, make_ucx_memory(opened.received_bytes));
    }
    const TwoPhaseRoundMemory memory{opened.sent.get(), opened.received.get()};
    const UcxWorker::Lock held = end_->lock();
    Link& link = links_[peer];
    drop_sent(link);
    const bool is_borrowed = std::ranges::any_of(link.parcels, [](const auto& sent) {
        return sent->rows != nullptr && sent->message.num_in_flight != 0;
    });
    if (is_borrowed) {
        return resource_exhausted(
            "blocks of the last two-phase round with peer {} are still on their way", with(peer));
    }
    link.round = std::move(opened);
    return memory;
}

template <typename Own, typename Peer>
void UcxRounds<Own, Peer>::close(uint32_t peer, int32_t round) {
    // Ends behind the lock, which others wait for: it may have gigabytes.
    std::optional<Round> closed;
    const UcxWorker::Lock held = end_->lock();
    Link& link = links_[peer];
    if (!link.round || link.round->number != round) return;
    closed = std::exchange(link.round, std::nullopt);
    drop_sent(link);
}

template <typename Own, typename Peer>
void UcxRounds<Own, Peer>::put(uint32_t peer, uint64_t offset, uint64_t bytes) {
    Link& link = links_[peer];
    // Without the lock: this thread opens and closes rounds.
    AFD_ASSERT(
        link.round && offset <= link.round->sent_bytes && bytes <= link.round->sent_bytes - offset,
        "peer %u has no open round of %zu + %zu bytes",
        peer,
        size_t{offset},
        size_t{bytes});
    for (const uint64_t last = offset + bytes; offset < last;) {
        // For a piece at a time: what arrives waits for it.
        const UcxWorker::Lock held = end_->lock();
        if (link.is_lost) return;
        const uint64_t piece = std::min(last - offset, kPieceBytes);
        Parcel& parcel = next_parcel(peer, UcxKind::kBlock);
        parcel.rows = link.round->sent;
        parcel.message.header.round = link.round->number;
        parcel.message.header.offset = offset;
        parcel.message.borrowed = link.round->sent.get() + offset;
        parcel.message.payload_bytes = piece;
        end_->send(peer, parcel.message);
        offset += piece;
    }
}

template <typename Own, typename Peer>
void UcxRounds<Own, Peer>::send_words(uint32_t peer,
                                      Word word,
                                      const Own& line,
                                      size_t table_bytes) {
    constexpr auto kWords = published_words<Own>();
    Parcel& parcel = next_parcel(peer, UcxKind::kWords);
    UcxMessage& message = parcel.message;
    message.header.word =
        static_cast<uint32_t>(std::find(kWords.begin(), kWords.end(), word) - kWords.begin());
    constexpr size_t kLine = kLineBytesSeen<Own>;
    message.payload_bytes = kLine + table_bytes;
    message.payload = std::make_unique<std::byte[]>(message.payload_bytes);
    std::memcpy(message.payload.get(), &line, kLine);
    if (table_bytes > 0) {
        std::memcpy(message.payload.get() + kLine, own_[peer] + 1, table_bytes);
    }
    end_->send(peer, message);
}

// UCX lets go of them in about the order in which they were sent.
template <typename Own, typename Peer>
void UcxRounds<Own, Peer>::drop_sent(Link& link) {
    while (!link.parcels.empty() && link.parcels.front()->message.num_in_flight == 0) {
        link.parcels.pop_front();
    }
}

template <typename Own, typename Peer>
size_t UcxRounds<Own, Peer>::num_unsent_words(uint32_t peer) const {
    return static_cast<size_t>(std::ranges::count_if(links_[peer].parcels, [](const auto& sent) {
        return sent->rows == nullptr && sent->message.num_in_flight != 0;
    }));
}

template <typename Own, typename Peer>
auto UcxRounds<Own, Peer>::next_parcel(uint32_t peer, UcxKind kind) -> Parcel& {
    Link& link = links_[peer];
    drop_sent(link);
    Parcel& parcel = *link.parcels.emplace_back(std::make_unique<Parcel>());
    parcel.message.header.kind = kind;
    parcel.message.header.number = link.num_sent++;
    return parcel;
}

template <typename Own, typename Peer>
void UcxRounds<Own, Peer>::store_table(uint32_t peer, std::span<const std::byte> table) {
    if (!table.empty()) std::memcpy(mirrors_[peer] + 1, table.data(), table.size());
}

// What is not of the open round is late. Returns whether the bytes belong where they say.
template <typename Own, typename Peer>
bool UcxRounds<Own, Peer>::store_piece(Link& link,
                                       const UcxHeader& header,
                                       std::span<const std::byte> payload) {
    if (link.is_lost || !link.round || link.round->number != header.round) return true;
    const Round& round = *link.round;
    if (header.offset > round.received_bytes ||
        payload.size() > round.received_bytes - header.offset) {
        return false;
    }
    if (!payload.empty()) {
        std::memcpy(round.received.get() + header.offset, payload.data(), payload.size());
    }
    return true;
}

template <typename Own, typename Peer>
bool UcxRounds<Own, Peer>::on_message(uint32_t peer,
                                      const UcxHeader& header,
                                      std::span<const std::byte> payload) {
    Link& link = links_[peer];
    if (header.kind == UcxKind::kBlock) {
        if (!store_piece(link, header, payload)) return false;
        payload = {};
    } else if (!is_valid(header, payload)) {
        return false;
    }
    if (header.number != link.num_arrived) {
        return header.number > link.num_arrived && link.early.size() < kEarlyMax &&
               link.early
                   .try_emplace(header.number,
                                header,
                                std::vector<std::byte>(payload.begin(), payload.end()))
                   .second;
    }
    if (!apply(peer, header, payload)) return false;
    ++link.num_arrived;
    while (!link.early.empty() && link.early.begin()->first == link.num_arrived) {
        const auto next = link.early.extract(link.early.begin());
        if (!apply(peer, next.mapped().first, next.mapped().second)) return false;
        ++link.num_arrived;
    }
    return true;
}

// A word that there is, and no more table than there may be.
template <typename Own, typename Peer>
bool UcxRounds<Own, Peer>::is_valid(const UcxHeader& header,
                                    std::span<const std::byte> payload) const {
    return header.word < published_words<Peer>().size() && payload.size() >= kLineBytesSeen<Peer> &&
           payload.size() - kLineBytesSeen<Peer> <= stripe_bytes<Peer>(layout_) - sizeof(Peer);
}

template <typename Own, typename Peer>
bool UcxRounds<Own, Peer>::apply(uint32_t peer,
                                 const UcxHeader& header,
                                 std::span<const std::byte> payload) {
    if (header.kind == UcxKind::kBlock) return true;
    Peer line{};
    std::memcpy(&line, payload.data(), kLineBytesSeen<Peer>);
    return take_word(
        peer, published_words<Peer>()[header.word], line, payload.subspan(kLineBytesSeen<Peer>));
}

template class UcxRounds<TwoPhaseSessionWords, TwoPhaseRankWords>;
template class UcxRounds<TwoPhaseRankWords, TwoPhaseSessionWords>;

}  // namespace afd::schedule
