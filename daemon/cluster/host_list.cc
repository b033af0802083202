// SPDX-License-Identifier: Apache-2.0
#include "daemon/cluster/host_list.h"

#include <algorithm>
#include <utility>

#include "daemon/cluster/cluster_protocol.h"
#include "daemon/program/logging.h"
#include "daemon/tcp/tcp_socket.h"
#include "proto/failure.h"

namespace afd::daemon {

struct HostList::Guest {
    Guest(HostList& list, ClusterChannel channel, std::string address)
        : link(list.loop_,
               std::move(channel),
               std::move(address),
               [&list, this](const Result<>& outcome) { list.on_read(*this, outcome); }),
          deadline(list.loop_, [&list, this] { list.drop(*this, "did not join"); }) {
        deadline.start(kSilentMs);
    }

    ClusterLink link;
    std::string name;  // Empty: it has not joined.
    cluster::Join facts;
    Timer deadline;           // To join, or, refused, to go.
    bool is_leaving = false;  // Refused: it is to read why, and go.
    bool ends_in_order = false;
};

HostList::HostList(EventLoop& loop, ClusterIdentity identity, Plan plan, HostListener& listener)
    : loop_(loop),
      identity_(std::move(identity)),
      certificate_watch_(loop, identity_),
      plan_(std::move(plan)),
      listener_(listener),
      beat_timer_(loop, [this] { beat(); }) {
    beat_timer_.start(kBeatMs, kBeatMs);
}

HostList::~HostList() = default;

Result<std::unique_ptr<HostList>> HostList::open(EventLoop& loop,
                                                 ListenAddress address,
                                                 ClusterIdentity identity,
                                                 Plan plan,
                                                 HostListener& listener) {
    std::unique_ptr<HostList> list(
        new HostList(loop, std::move(identity), std::move(plan), listener));
    AFD_ASSIGN(UniqueFd socket, listen_tcp(address, "cluster_listen"));
    list->address_ = address;
    list->acceptor_ = std::make_unique<Acceptor>(
        loop, std::move(socket), address.text(), [list = list.get()](UniqueFd connected) {
            list->add(std::move(connected));
        });
    return list;
}

void HostList::add(UniqueFd socket) {
    const std::string from = peer_name(socket.get());
    if (guests_.size() - joined_.size() >= kGuestsMax && !make_room()) {
        refusals_.warn(
            from, fmt::format("refused: {} others have not joined", kGuestsMax), loop_.now_ms());
        return;
    }
    auto channel = ClusterChannel::accept(std::move(socket), identity_);
    if (!channel.ok()) {
        refusals_.warn(from, channel.error().message, loop_.now_ms());
        return;
    }
    guests_.emplace_back(*this, std::move(channel).value(), from);
}

// False: all guests have a certificate of the cluster.
bool HostList::make_room() {
    const auto oldest = std::ranges::find_if(
        guests_, [](Guest& guest) { return !guest.link.channel().is_established(); });
    if (oldest == guests_.end()) return false;
    drop(*oldest, "dropped for another: it has not said who it is");
    return true;
}

void HostList::on_read(Guest& guest, const Result<>& outcome) {
    const Result<> taken = guest.is_leaving ? Result<>() : take_messages(guest);
    if (!outcome.ok()) {
        drop(guest, outcome.error().message);
    } else if (!taken.ok()) {
        const std::string name = guest.name;
        refuse(guest, taken.error());
        if (!name.empty()) listener_.on_host_left(name);
    }
}

Result<> HostList::take_messages(Guest& guest) {
    cluster::HostMessage message;
    while (true) {
        AFD_ASSIGN(const bool is_complete, guest.link.channel().next(message));
        if (!is_complete) return {};
        if (message.has_join() && guest.name.empty()) {
            AFD_TRY(join(guest, message.join()));
        } else if (message.has_leave() && !guest.name.empty()) {
            guest.ends_in_order = true;
        } else if (!message.has_beat() || guest.name.empty()) {
            return data_loss("it said something else than that it joins");
        }
    }
}

Result<> HostList::join(Guest& guest, const cluster::Join& wanted) {
    const std::string& name = guest.link.channel().peer_name();
    AFD_TRY(check(name, wanted));
    AFD_TRY(make_way(guest, name, wanted));
    guest.name = name;
    guest.facts = wanted;
    joined_[name] = &guest;
    guest.deadline.stop();
    cluster::LeaderMessage answer;
    *answer.mutable_joined() = plan_.awaited.at(name);
    guest.link.send(answer);
    log::info(
        "host '{}' has joined from {}: {} cores", name, guest.link.peer(), wanted.num_cores());
    listener_.on_host_joined(name);
    return {};
}

// The one that is there goes for one of the same machine; another stays until it is silent.
Result<> HostList::make_way(const Guest& guest,
                            const std::string& name,
                            const cluster::Join& wanted) {
    const auto before = joined_.find(name);
    if (before == joined_.end()) return {};
    Guest& there = *before->second;
    // Without the ports, which change: one reason for each pair.
    const auto address = [](const std::string& peer) { return peer.substr(0, peer.rfind(':')); };
    if (there.facts.boot() == wanted.boot()) {
        refuse(there,
               failed_precondition("the host has joined again, from {}",
                                   with(address(guest.link.peer()))));
        return {};
    }
    return unavailable(
        "host '{}' is there already, from {}, and this is another machine, or it was rebooted a "
        "moment ago, at {}: if these are two, give each a name and a certificate of its own "
        "(afdctl cluster init DIR --host NAME)",
        with(name, address(there.link.peer()), address(guest.link.peer())));
}

// Before anything else: what the other fields mean depends on it.
Result<> HostList::check_build(const std::string& name, const cluster::Join& wanted) const {
    if (wanted.build() == plan_.build) return {};
    const std::string build = wanted.build().empty()
                                  ? fmt::format("unknown (hosts {})", wanted.version())
                                  : wanted.build();
    return failed_precondition(
        "host '{}' has afdd of version {:.127}, the leader of version {}: install the same one on "
        "both",
        with(name, build, plan_.build));
}

// Which model a host has that is not the leader's, as far as that tells what is to be mended.
Result<> HostList::check_model(const std::string& name, const cluster::Join& wanted) const {
    if (wanted.model_identity() == plan_.model_identity) return {};
    if (wanted.weights_identity() == plan_.weights_identity && !plan_.weights_identity.empty()) {
        return failed_precondition(
            "host '{}' has the leader's weights, and another kv_dtype: int8_channel makes the file "
            "of its factors a part of the model; set kv_dtype alike on both, and give them the "
            "same kv_scales.safetensors",
            with(name));
    }
    // An identity has at most 127 bytes; whatever this is goes into the log.
    return failed_precondition(
        "host '{}' has model {:.127}, the leader {}: give both the same files",
        with(name, wanted.model_identity(), plan_.model_identity));
}

// Nothing else of the host asks its own tokenizer.
Result<> HostList::check_vocabulary(const std::string& name, const cluster::Join& wanted) const {
    if (plan_.awaited.at(name).num_attention_workers() == 0) return {};
    if (wanted.vocabulary_digest() == plan_.vocabulary_digest) return {};
    return failed_precondition(
        "host '{}' has another tokenizer than the leader: the digest of its tokens is {:.127}, the "
        "leader's {}; give both the same tokenizer.json (or tiktoken.model) and "
        "tokenizer_config.json",
        with(name, wanted.vocabulary_digest(), plan_.vocabulary_digest));
}

Result<> HostList::check_numeric_class(const std::string& name, const cluster::Join& wanted) const {
    const auto is_in = [](const auto& classes, const std::string& numeric_class) {
        return std::ranges::find(classes, numeric_class) != classes.end();
    };
    if (is_in(wanted.numeric_classes(), plan_.numeric_class)) return {};
    const auto& own = plan_.native_numeric_classes;
    const auto common =
        std::ranges::find_if(own.rbegin(), own.rend(), [&](const std::string& numeric_class) {
            return is_in(wanted.native_numeric_classes(), numeric_class);
        });
    // No processor lacks portable: this is no afdd of our build.
    if (common == own.rend()) {
        return data_loss("host '{}' says that its processor has not even numeric class portable",
                         with(name));
    }
    return failed_precondition(
        "the processor of host '{}' cannot run numeric class {}; the fastest that both have is "
        "{}: start the leader with --numeric-class {}",
        with(name, plan_.numeric_class, *common, *common));
}

// Of a model whose identity is the leader's, which looks at samples of its tensors alone. Experts
// that were packed from other bits have that identity, too.
Result<> HostList::check_bits(const std::string& name, const cluster::Join& wanted) const {
    if (model_digest_.empty()) {
        return unavailable(
            "the leader still reads its weights, to compare them with those of host '{}'",
            with(name));
    }
    if (wanted.model_digest().empty()) {
        return unavailable("host '{}' still reads its weights, to compare them with the leader's",
                           with(name));
    }
    if (wanted.model_digest() == model_digest_) return {};
    return failed_precondition(
        "host '{}' has other bits of the same model: the digest of its weights is {:.127}, the "
        "leader's {}; copy the leader's files to it again, and delete {}-* of its weight_cache",
        with(name, wanted.model_digest(), model_digest_, plan_.weights_identity));
}

Result<> HostList::check(const std::string& name, const cluster::Join& wanted) const {
    AFD_TRY(check_build(name, wanted));
    if (!plan_.awaited.contains(name)) {
        return failed_precondition(
            "host '{}' is in none of the lists attention_hosts and "
            "ffn_hosts of the leader",
            with(name));
    }
    AFD_TRY(check_model(name, wanted));
    AFD_TRY(check_vocabulary(name, wanted));
    AFD_TRY(check_numeric_class(name, wanted));
    if (wanted.port() == 0 || wanted.port() > UINT16_MAX) {
        return data_loss("host '{}' listens at port {}, which is none", with(name, wanted.port()));
    }
    // Of one in whose place it comes, the workers have what its own will have.
    const auto there = joined_.find(name);
    const bool is_again = there != joined_.end() && there->second->facts.boot() == wanted.boot();
    if (wanted.has_available_bytes() && !is_again) AFD_TRY(plan_.check_room(name, wanted));
    // The last: waiting mends it.
    return check_bits(name, wanted);
}

// It hears why, and has a moment to go.
void HostList::refuse(Guest& guest, const Error& why) {
    // What is available is another number at each attempt.
    const std::string kind = why.code == Code::kResourceExhausted
                                 ? "no room on " + guest.link.channel().peer_name()
                                 : "";
    refusals_.warn(guest.link.peer(), "refused: " + why.message, loop_.now_ms(), kind);
    cluster::LeaderMessage answer;
    answer.mutable_refusal()->set_code(static_cast<uint32_t>(why.code));
    answer.mutable_refusal()->set_message(why.message);
    guest.is_leaving = true;
    guest.link.send(answer);
    guest.deadline.start(kBeatMs);
    if (guest.name.empty()) return;
    joined_.erase(std::exchange(guest.name, ""));
}

void HostList::drop(Guest& guest, const std::string& why) {
    const std::string name = guest.name;
    if (!name.empty() && guest.ends_in_order) {
        log::info("host '{}' at {} has ended in order", name, guest.link.peer());
    } else if (!name.empty()) {
        log::warn("host '{}' has left: {}", name, why);
    } else if (!guest.is_leaving) {
        refusals_.warn(guest.link.peer(), why, loop_.now_ms());
    }
    joined_.erase(name);
    guests_.remove_if([&](const Guest& one) { return &one == &guest; });
    if (!name.empty()) listener_.on_host_left(name);
}

void HostList::beat() {
    cluster::LeaderMessage message;
    message.mutable_beat();
    for (const auto& [name, guest] : joined_) guest->link.send(message);
}

void HostList::say_over() {
    cluster::LeaderMessage message;
    message.mutable_over();
    for (const auto& [name, guest] : joined_) guest->link.send(message);
}

std::optional<control::RemoteHost> HostList::find(const std::string& name) const {
    const auto found = joined_.find(name);
    if (found == joined_.end()) return std::nullopt;
    const Guest& guest = *found->second;
    const auto comes_from = peer_address(guest.link.fd());
    if (!comes_from) return std::nullopt;
    ListenAddress address = listen_address_of(*comes_from);
    address.port = static_cast<uint16_t>(guest.facts.port());
    control::RemoteHost host;
    host.set_name(name);
    host.set_address(to_bytes(socket_address_of(address)));
    return host;
}

std::string HostList::missing_text() const {
    std::string text;
    for (const auto& [name, unused] : plan_.awaited) {
        if (joined_.contains(name)) continue;
        text += (text.empty() ? "" : ", ") + name;
    }
    return text;
}

void HostList::fill_status(client::Status& status) const {
    status.set_certificate_expires_s(identity_.expires_s());
    for (const auto& [name, share] : plan_.awaited) {
        client::Host& host = *status.add_hosts();
        host.set_name(name);
        const auto found = joined_.find(name);
        if (found == joined_.end()) continue;
        host.set_address(found->second->link.peer());
        host.set_num_cores(found->second->facts.num_cores());
        host.set_memory_bytes(found->second->facts.memory_bytes());
    }
}

}  // namespace afd::daemon
