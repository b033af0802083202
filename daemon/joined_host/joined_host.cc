// SPDX-License-Identifier: Apache-2.0
#include "daemon/joined_host/joined_host.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "daemon/cluster/cluster_protocol.h"
#include "daemon/config/own_host_name.h"
#include "daemon/config/port_range.h"
#include "daemon/config/worker_name.h"
#include "daemon/control/worker_options.h"
#include "daemon/instance/build_version.h"
#include "daemon/instance/cache_room.h"
#include "daemon/instance/weight_cache_choice.h"
#include "daemon/joined_host/local_welcome.h"
#include "daemon/placement/ucx_host.h"
#include "daemon/program/logging.h"
#include "daemon/tcp/tcp_socket.h"
#include "proto/failure.h"
#include "schedule/shared_memory/memory_room.h"

namespace afd::daemon {

namespace {

// What workers that are killed take to end, many times over.
constexpr uint64_t kEndingMsMax = 10'000;

// The kernel draws it at its start: no two machines have the same, nor one machine twice.
std::string boot_id() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    file >> id;
    return id;
}

}  // namespace

JoinedHost::JoinedHost(Config config,
                       std::string worker_directory,
                       ServiceNotifier notifier,
                       std::function<Result<Config>()> reload)
    : config_(std::move(config)),
      worker_directory_(std::move(worker_directory)),
      notifier_(std::move(notifier)),
      reload_(std::move(reload)),
      life_(loop_, notifier_, true),
      setup_(config_),
      leave_timer_(loop_,
                   [this] {
                       log::warn("{} has not ended in time", tie_->leader_name());
                       end(ExitCode::kOk);
                   }),
      grace_timer_(loop_, [this] {
          for (const auto& [place, seat] : seats_) seat->shut_down(true);
      }) {}

JoinedHost::~JoinedHost() = default;

ExitCode JoinedHost::fail(ExitCode code, const Error& error) {
    log::error("{}", error.message);
    return code;
}

ExitCode JoinedHost::run() {
    if (const auto done = setup_.take_instance(); !done.ok()) {
        return fail(exit_code_of_taking(done.error().code), done.error());
    }
    if (const auto done = setup_.open_model(); !done.ok()) {
        return fail(ExitCode::kModel, done.error());
    }
    if (const auto done = setup_.choose_kernels(); !done.ok()) {
        return fail(ExitCode::kUsage, done.error());
    }
    if (const auto done = setup_.create_vocabulary(); !done.ok()) {
        return fail(ExitCode::kSharedMemory, done.error());
    }
    if (const auto done = open(); !done.ok()) {
        return fail(exit_code_of_taking(done.error().code), done.error());
    }
    for (const int signal : {SIGTERM, SIGINT}) {
        signals_.push_back(
            std::make_unique<SignalWatcher>(loop_, signal, [this, signal] { on_signal(signal); }));
    }
    signals_.push_back(std::make_unique<SignalWatcher>(loop_, SIGHUP, [this] { reload(); }));
    signals_.push_back(std::make_unique<SignalWatcher>(
        loop_, SIGUSR1, [this] { log::info("SIGUSR1: {}", state_text()); }));
    life_.begin();
    // At once: of all but the digest the leader may already say what is wrong.
    tie_->start();
    digest_thread_ = std::make_unique<DigestThread>(
        loop_, setup_, [this](const Result<std::string>& digest) { on_digest(digest); });
    loop_.run();
    signals_.clear();
    return exit_code_;
}

Result<> JoinedHost::open() {
    AFD_ASSIGN(identity_, ClusterIdentity::load(config_.cluster_dir, own_host_name(config_)));
    certificate_watch_.emplace(loop_, *identity_);
    AFD_ASSIGN(tie_, LeaderTie::make(loop_, config_, *identity_, *this));
    guests_ = std::make_unique<Guests>(
        loop_,
        *identity_,
        [this](std::unique_ptr<ClusterLink>& link, cluster::Take& wanted) -> Result<> {
            AFD_ASSIGN(Seat* const seat, seat_of(wanted));
            seat->take(std::move(link), std::move(*wanted.mutable_welcome()));
            return {};
        });
    AFD_ASSIGN(door_, WorkerDoor::open(loop_, setup_.paths().control_socket));
    door_->add(*this);
    return {};
}

void JoinedHost::on_digest(const Result<std::string>& digest) {
    if (is_ending_) return;
    if (!digest.ok()) {
        log::error("{}", digest.error().message);
        return end(ExitCode::kModel);
    }
    model_digest_ = digest.value();
}

Result<cluster::Join> JoinedHost::join_over(const ClusterLink& leader) {
    AFD_TRY(listen_beside(leader));
    cluster::Join join;
    join.set_version(kClusterVersion);
    join.set_build(build_version());
    join.set_port(own_address_.port);
    join.set_model_identity(setup_.model().identity());
    join.set_weights_identity(setup_.model().weights_identity());
    join.set_model_digest(model_digest_);
    join.set_vocabulary_digest(setup_.vocabulary_digest());
    join.set_boot(boot_id());
    for (const ops::NumericClass known : ops::supported_numeric_classes()) {
        const std::string class_name(ops::name_of(known));
        join.add_numeric_classes(class_name);
        if (ops::is_native(known)) join.add_native_numeric_classes(class_name);
    }
    join.set_num_cores(static_cast<uint32_t>(allowed_cpus().size()));
    join.set_memory_bytes(static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                          static_cast<uint64_t>(::sysconf(_SC_PAGE_SIZE)));
    AFD_TRY(say_room(join));
    return join;
}

// Before any of its workers runs. Those that stay while the host joins again have theirs; what
// those have that are ending, the next ones can have.
Result<> JoinedHost::say_room(cluster::Join& join) {
    if (std::ranges::none_of(seats_, [](const auto& seat) { return seat.second->is_ending(); })) {
        ending_since_ms_.reset();
    } else {
        const uint64_t now_ms = loop_.now_ms();
        ending_since_ms_ = ending_since_ms_.value_or(now_ms);
        // One that the kernel does not let go holds up no others.
        if (now_ms - *ending_since_ms_ < kEndingMsMax) {
            return unavailable("{}: the workers of this host from before have not ended yet",
                               with(tie_->leader_name()));
        }
    }
    join.set_shares_experts(shares_experts(config_));
    if (!has_workers()) join.set_available_bytes(schedule::available_memory_bytes());
    return {};
}

// Where the leader's way to this host ends, so that its stand-ins find it.
Result<> JoinedHost::listen_beside(const ClusterLink& leader) {
    const auto own = own_address(leader.fd());
    if (!own) return unavailable("{}: the connection has no address", with(leader.peer()));
    ListenAddress address = listen_address_of(*own);
    if (address.host == own_address_.host) return {};
    AFD_ASSIGN(ucx_host_, choose_ucx_host(config_, address.host));
    AFD_ASSIGN(const PortRange ports, parse_port_range(config_.host_ports));
    Result<UniqueFd> socket = listen_within(ports, address, "host_ports");
    if (!socket.ok()) {
        // Who has the ports may be gone at the next attempt.
        const bool is_taken = socket.error().code == Code::kAlreadyExists;
        return is_taken ? unavailable("{}", with(socket.error().message)) : socket.error();
    }
    own_address_ = address;
    acceptor_ = std::make_unique<Acceptor>(
        loop_, std::move(socket).value(), address.text(), [this](UniqueFd connected) {
            guests_->add(std::move(connected));
        });
    log::info("the leader finds this host at {}", address.text());
    return {};
}

Result<> JoinedHost::on_joined(const ClusterLink& leader, const cluster::Joined& joined) {
    AFD_TRY(plan_for(joined));
    AFD_TRY(choose_network(joined.ucx_transports()));
    log::info("joined instance '{}' of {}: {} attention and {} ffn workers here, over UCX at {}",
              joined.instance(),
              leader.peer(),
              joined.num_attention_workers(),
              joined.num_ffn_workers(),
              ucx_network_.text());
    life_.say_ready("joined " + leader.peer());
    return {};
}

// Workers use the leader's transports, so these say which devices there can be. Nothing is looked
// up again while both stay: a device that is down at that moment would end the host.
Result<> JoinedHost::choose_network(const std::string& transports) {
    if (ucx_network_.host == ucx_host_ && transports_ == transports) return {};
    Config local = config_;
    local.ucx_transports = transports;
    AFD_ASSIGN(ucx_network_, choose_ucx_network(local, ucx_host_, network_devices()));
    transports_ = transports;
    return {};
}

// Workers keep their cores when the host joins again, so the plan stays as long as it fits.
Result<> JoinedHost::plan_for(const cluster::Joined& joined) {
    if (cpus_.attention.size() == joined.num_attention_workers() &&
        cpus_.ffn.size() == joined.num_ffn_workers()) {
        return {};
    }
    Config local = config_;
    local.attention_workers = joined.num_attention_workers();
    local.ffn_workers = joined.num_ffn_workers();
    const std::vector<uint32_t> allowed = allowed_cpus();
    const double quota = cpu_quota();
    AFD_ASSIGN(cpus_, setup_.cores().plan(allowed, [&](const std::vector<uint32_t>& cores) {
        return plan_cpus(local, cores, quota);
    }));
    ++cpu_plan_;
    release_cores();
    return {};
}

// Those of the plans before, once no worker is left that has them.
void JoinedHost::release_cores() {
    if (claimed_plan_ == cpu_plan_) return;
    const bool has_older = std::ranges::any_of(seats_, [this](const auto& seat) {
        return seat.second->pid() != 0 && seat.second->cpu_share().plan != cpu_plan_;
    });
    if (has_older) return;
    setup_.cores().hold(cpus_);
    claimed_plan_ = cpu_plan_;
}

void JoinedHost::on_leader_over() {
    log::info("{} has ended, and this host with it", tie_->leader_name());
    end(ExitCode::kOk);
}

void JoinedHost::on_leader_lost() {
    if (is_leaving_ && !is_ending_) end(ExitCode::kOk);
}

void JoinedHost::on_leader_missing(const std::string& why) {
    life_.say_status("waiting for its leader: " + why);
}

void JoinedHost::on_leader_refuses(const Error& why) {
    log::error("{}", why.message);
    end(why.code == Code::kResourceExhausted ? ExitCode::kSharedMemory : ExitCode::kUsage);
}

// Once, before anything is packed. The leader, which counts this host's memory, cannot look.
void JoinedHost::look_at_cache(const cluster::Take& wanted) {
    const auto numeric_class = ops::parse_numeric_class(wanted.welcome().numeric_class());
    const bool has_experts = wanted.role() == control::FFN;
    if (has_looked_at_cache_ || !has_experts || !numeric_class || !shares_experts(config_)) return;
    has_looked_at_cache_ = true;
    const std::string& directory = setup_.weight_cache_directory();
    const CacheRoom room = room_for_experts(directory, setup_.model(), *numeric_class);
    if (const auto text = room.warning(directory); !text.empty()) log::warn("{}", text);
}

Result<Seat*> JoinedHost::seat_of(const cluster::Take& wanted) {
    if (is_ending_) return failed_precondition("this host is leaving");
    // Those of a leader that there was before: its places may have been others.
    std::erase_if(seats_, [&](const auto& seat) {
        return seat.second->pid() == 0 &&
               seat.second->instance_id() != wanted.welcome().instance_id();
    });
    if (const auto found = seats_.find({wanted.role(), wanted.index()}); found != seats_.end()) {
        return found->second.get();
    }
    // It gets its cores when its process starts.
    AFD_TRY(free_cpu_index(wanted.role()));
    look_at_cache(wanted);
    AFD_ASSIGN(auto seat, Seat::make(loop_, seat_settings(wanted.role(), wanted.index())));
    Seat* const made = seat.get();
    seats_[{wanted.role(), wanted.index()}] = std::move(seat);
    // As many visitors as it has workers now.
    door_->remove(*this);
    door_->add(*this);
    return made;
}

// The first that no seat of the role has: they leave in any order.
Result<size_t> JoinedHost::free_cpu_index(control::Role role) const {
    size_t num = 0;
    if (role == control::FFN) num = cpus_.ffn.size();
    if (role == control::ATTENTION) num = cpus_.attention.size();
    size_t index = 0;
    while (std::ranges::any_of(seats_, [&](const auto& seat) {
        const Seat::CpuShare& share = seat.second->cpu_share();
        return seat.first.first == role && share.plan == cpu_plan_ && share.index == index;
    })) {
        ++index;
    }
    if (index < num) return index;
    return failed_precondition("the leader had {} workers of this role for this host", with(num));
}

// Its next process has those of the last, unless these are of a plan before.
Result<> JoinedHost::share_cores(Seat& seat, control::Role role) {
    if (seat.cpu_share().plan == cpu_plan_) return {};
    AFD_ASSIGN(const size_t index, free_cpu_index(role));
    seat.set_cpu_share({.plan = cpu_plan_, .index = index});
    return {};
}

Seat::Settings JoinedHost::seat_settings(control::Role role, uint32_t index) {
    Seat::Settings settings;
    settings.role = role;
    settings.index = index;
    settings.executable = worker_directory_ + "/" + worker_program_name(role_name(role));
    settings.arguments = arguments_of({.instance = config_.instance,
                                       .index = index,
                                       .control_socket = setup_.paths().control_socket,
                                       .log_level = config_.log_level,
                                       .log_format = config_.log_format,
                                       .own_process_group = true});
    const LocalWelcome local{.role = role, .index = index};
    settings.localise = [this, local](control::Welcome& welcome) -> Result<> {
        Seat& seat = *seats_.at({local.role, local.index});
        AFD_TRY(share_cores(seat, local.role));
        return local.localise(
            config_, setup_, ucx_network_, cpus_, seat.cpu_share().index, welcome);
    };
    settings.create_segments = [local](const control::Welcome& welcome) {
        return local.create_segments(welcome);
    };
    settings.shared_segments = [this, local](const control::Welcome& welcome) {
        return local.shared_segments(setup_, welcome);
    };
    settings.on_ready = [this, role](const control::Welcome& welcome) {
        kept_experts_.keep(role, welcome, setup_.model());
    };
    settings.on_gone = [this] {
        release_cores();
        check_all_gone();
    };
    return settings;
}

bool JoinedHost::has_process(int pid) const {
    return std::ranges::any_of(seats_,
                               [pid](const auto& seat) { return seat.second->pid() == pid; });
}

Result<> JoinedHost::give_slot(ControlChannel& channel, const control::Hello& hello, int pid) {
    const auto found = seats_.find({hello.role(), hello.index()});
    if (found == seats_.end() || found->second->pid() != pid) {
        return failed_precondition("this host starts its workers itself, when its leader asks");
    }
    return found->second->admit(channel);
}

void JoinedHost::reload() {
    life_.begin_reload();
    if (const Result<> done = reload_config(); !done.ok()) {
        log::error("SIGHUP: nothing changes: {}", done.error().message);
    }
    life_.end_reload();
}

// Workers keep that of their start, until the leader is sent a SIGHUP.
Result<> JoinedHost::reload_config() {
    AFD_ASSIGN(const Config config, reload_());
    AFD_TRY(identity_->renew());
    tie_->hurry();
    set_log_level(config.log_level);
    log::info(
        "SIGHUP: log_level is {}; every other option stays as it was at the start; certificates "
        "were read again",
        config.log_level);
    return {};
}

std::string JoinedHost::state_text() const {
    nlohmann::json workers = nlohmann::json::array();
    for (const auto& [place, seat] : seats_) {
        workers.push_back(
            {{"role", role_name(place.first)}, {"index", place.second}, {"pid", seat->pid()}});
    }
    const nlohmann::json state = {{"leader", config_.join},
                                  {"joined", tie_->is_joined()},
                                  {"leaving", is_leaving_ || is_ending_},
                                  {"workers", workers}};
    return state.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void JoinedHost::on_signal(int signal) {
    const auto meaning = end_signals_.on_signal(loop_.now_ms());
    if (meaning == EndSignals::Meaning::kSame) return;
    const bool is_first = meaning == EndSignals::Meaning::kDrain;
    if (is_first && is_ending_) return;
    if (is_first && config_.leave_with_leader && tie_->is_joined()) {
        return leave(::strsignal(signal));
    }
    if (!tie_->is_connected()) {
        log::info("ending; no leader is joined");
    } else {
        log::info("leaving {}", tie_->leader_name());
    }
    end(ExitCode::kOk);
}

// Whoever ends a job ends the leader, too; what runs here is its requests.
void JoinedHost::leave(const char* why) {
    is_leaving_ = true;
    log::info("{}: leaving {} when it has drained", why, tie_->leader_name());
    leave_timer_.start(config_.drain_timeout_ms + kGraceMs);
    life_.say_stopping("its leader drains", config_.drain_timeout_ms + 2 * kGraceMs);
}

void JoinedHost::end(ExitCode code) {
    const bool is_second = std::exchange(is_ending_, true);
    if (!is_second) exit_code_ = code;
    life_.say_stopping("its workers end", kGraceMs);
    leave_timer_.stop();
    tie_->stop();
    for (const auto& [place, seat] : seats_) seat->shut_down(is_second);
    grace_timer_.start(kGraceMs);
    check_all_gone();
}

bool JoinedHost::has_workers() const {
    return std::ranges::any_of(seats_, [](const auto& seat) { return seat.second->pid() != 0; });
}

void JoinedHost::check_all_gone() {
    if (is_ending_ && !has_workers()) loop_.stop();
}

}  // namespace afd::daemon
