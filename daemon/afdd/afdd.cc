// SPDX-License-Identifier: Apache-2.0
#include "daemon/afdd/afdd.h"

#include <csignal>
#include <cstring>
#include <map>
#include <utility>

#include "daemon/afdd/http_setup.h"
#include "daemon/afdd/lane_list.h"
#include "daemon/afdd/state_text.h"
#include "daemon/config/own_host_name.h"
#include "daemon/instance/build_version.h"
#include "daemon/instance/file_budget.h"
#include "daemon/instance/instance_memory.h"
#include "daemon/loop/descriptor_limit.h"
#include "daemon/program/logging.h"
#include "model/attention/attention_config.h"
#include "model/attention/layer_windows.h"
#include "model/decoder/attention_half.h"
#include "proto/failure.h"
#include "proto/state_names.h"

namespace afd::daemon {

Afdd::Afdd(Config config, Surroundings surroundings, std::unique_ptr<Predecessor> predecessor)
    : config_(std::move(config)),
      surroundings_(std::move(surroundings)),
      started_us_(uv_hrtime() / 1000),
      life_(loop_, surroundings_.notifier, predecessor == nullptr),
      setup_(config_),
      takeover_(predecessor == nullptr ? nullptr
                                       : std::make_unique<Takeover>(std::move(predecessor))),
      drain_timer_(loop_,
                   [this] {
                       log::error(
                           "{} requests are not finished after drain_timeout_ms = {}; they end now",
                           gateway_->num_in_flight(),
                           config_.drain_timeout_ms);
                       end(ExitCode::kDrainTimedOut, kGraceMs);
                   }),
      heartbeat_timer_(loop_, [this] { say_heartbeat(); }),
      link_timer_(loop_, [this] { look_at_links(); }) {}

ExitCode Afdd::run() {
    // The order is that of cost and of blame: the lock first, because leftovers may be removed only
    // by the one afdd of that name; then what the user can mend; shared memory and sockets last.
    const auto taken = takeover_ == nullptr ? setup_.take_instance()
                                            : setup_.take_instance_from(takeover_->predecessor());
    if (!taken.ok()) {
        return fail(exit_code_of_taking(taken.error().code), taken.error());
    }
    if (const auto done = setup_.open_model(); !done.ok()) {
        return fail(ExitCode::kModel, done.error());
    }
    if (const auto done = setup_.choose_kernels(); !done.ok()) {
        return fail(ExitCode::kUsage, done.error());
    }
    if (const auto done = setup_.choose_network(); !done.ok()) {
        return fail(ExitCode::kUsage, done.error());
    }
    crew_ = std::make_unique<Crew>(loop_, setup_, config_);
    if (const auto done = crew_->plan(); !done.ok()) return fail(ExitCode::kUsage, done.error());
    if (const auto done = crew_->place_experts(); !done.ok()) {
        return fail(ExitCode::kUsage, done.error());
    }
    const Result<InstanceMemory> memory = crew_->memory();
    if (!memory.ok()) return fail(ExitCode::kUsage, memory.error());
    const std::string& cache = setup_.weight_cache_directory();
    if (const auto text = memory.value().cache_room.warning(cache); !text.empty()) {
        log::warn("{}", text);
    }
    if (const auto done = check_room_for(memory.value()); !done.ok()) {
        return fail(ExitCode::kSharedMemory, done.error());
    }
    if (const auto done = crew_->create_segments(); !done.ok()) {
        const bool is_usage = done.error().code == Code::kInvalidArgument;
        return fail(is_usage ? ExitCode::kUsage : ExitCode::kSharedMemory, done.error());
    }
    if (const auto done = setup_.create_vocabulary(); !done.ok()) {
        return fail(ExitCode::kSharedMemory, done.error());
    }
    if (const auto done = open_to_hosts(); !done.ok()) {
        return fail(exit_code_of_taking(done.error().code), done.error());
    }
    if (const auto done = hire_crew(); !done.ok()) {
        return fail(exit_code_of_taking(done.error().code), done.error());
    }
    if (const auto done = create_gateway(); !done.ok()) {
        return fail(exit_code_of_taking(done.error().code), done.error());
    }
    serve();
    return exit_code_;
}

ExitCode Afdd::fail(ExitCode code, const Error& error) {
    log::error("{}", error.message);
    if (takeover_ != nullptr) takeover_->say_failed(error.message);
    return code;
}

Result<> Afdd::open_to_hosts() {
    const HostPlan& plan = crew_->layout().hosts();
    if (plan.is_local()) return {};
    AFD_ASSIGN(ClusterIdentity identity,
               ClusterIdentity::load(config_.cluster_dir, own_host_name(config_)));
    AFD_ASSIGN(const ListenAddress address, parse_listen_address(config_.cluster_listen));
    HostList::Plan wanted;
    wanted.build = build_version();
    wanted.model_identity = setup_.model().identity();
    wanted.weights_identity = setup_.model().weights_identity();
    wanted.vocabulary_digest = setup_.vocabulary_digest();
    wanted.numeric_class = std::string(ops::name_of(setup_.numeric_class()));
    for (const ops::NumericClass known : ops::supported_numeric_classes()) {
        if (ops::is_native(known)) wanted.native_numeric_classes.emplace_back(ops::name_of(known));
    }
    wanted.awaited = plan.shares(config_);
    // Each sum is made once: of a large model it takes milliseconds, and hosts try again and again.
    using Share = std::pair<std::string, bool>;
    wanted.check_room = [this, sums = std::map<Share, InstanceMemory>()](
                            const std::string& host,
                            const cluster::Join& join) mutable -> Result<> {
        const Share share(host, join.shares_experts());
        if (!sums.contains(share)) {
            AFD_ASSIGN(sums[share], crew_->layout().memory_on(host, join.shares_experts()));
        }
        return check_room_on(host, sums[share], join.available_bytes());
    };
    AFD_ASSIGN(hosts_,
               HostList::open(loop_, address, std::move(identity), std::move(wanted), *this));
    log::info(
        "waiting for hosts to join at {}: {}", hosts_->address().text(), hosts_->missing_text());
    digest_thread_ = std::make_unique<DigestThread>(
        loop_, setup_, [this](const Result<std::string>& digest) { on_digest(digest); });
    return {};
}

void Afdd::on_digest(const Result<std::string>& digest) {
    if (digest.ok()) return hosts_->set_model_digest(digest.value());
    if (ending_) return;
    log::error("{}", digest.error().message);
    end(ExitCode::kModel, kGraceMs);
}

Result<> Afdd::hire_crew() {
    AFD_ASSIGN(door_, WorkerDoor::open(loop_, setup_.paths().control_socket));
    return crew_->hire(*door_, surroundings_.worker_directory, hosts_.get());
}

Result<> Afdd::create_gateway() {
    ServedModel served;
    served.directory = setup_.model().directory();
    served.vocab_size = setup_.model().config().vocab_size;
    served.context_length = setup_.model().config().context_length;
    served.window = setup_.model().config().attention->window();
    served.stop_ids = setup_.model().generation().eos_token_ids;
    served.tokenizer = &setup_.tokenizer();
    AFD_ASSIGN(model::Tokenizer of_thread, model::Tokenizer::load(config_.model));
    texts_ = std::make_unique<TextThread>(loop_, std::move(of_thread));
    served.texts = texts_.get();
    AttentionWorkers& workers = *this;
    ServedInstance& instance = *this;
    gateway_ = std::make_unique<Gateway>(
        loop_, config_, std::move(served), crew_->workers().trace_sources(), workers, instance);
    resizer_ = std::make_unique<Resizer>(
        loop_,
        crew_,
        Resizer::Surroundings{.worker_directory = surroundings_.worker_directory,
                              .door = door_.get(),
                              .gateway = gateway_.get(),
                              .instance = this,
                              .on_end = [this] { limit_connections(); }});
    upgrader_ = std::make_unique<Upgrader>(
        loop_,
        Upgrader::Surroundings{.command_line = surroundings_.command_line,
                               .config = &config_,
                               .life = &life_,
                               .setup = &setup_,
                               .gateway = gateway_.get(),
                               .doors = &doors_,
                               .check_possible = [this] { return check_undisturbed(); },
                               .on_ended = [this] { drain("the new afdd has ended"); },
                               .on_left = [this] { end(ExitCode::kOk, kGraceMs); }});
    limit_connections();
    // Beside another afdd they are opened when every worker serves.
    return takeover_ == nullptr ? open_doors()
                                : Doors::check_beside(takeover_->predecessor(), config_);
}

Result<> Afdd::check_one_host() const {
    if (hosts_ == nullptr) return {};
    return unimplemented(
        "with workers on other hosts (attention_hosts, ffn_hosts) an instance can be neither "
        "resized nor upgraded yet; stop it and start it anew");
}

// For an upgrade.
Result<> Afdd::check_undisturbed() const {
    AFD_TRY(check_one_host());
    AFD_TRY(resizer_->check_idle());
    if (has_predecessor()) {
        return failed_precondition("the afdd before this one has not ended yet: {}",
                                   with(takeover_->text()));
    }
    if (!crew_->supervisor().is_all_ready()) {
        return failed_precondition(
            "not every worker has been ready yet; try again when afdctl status says ready");
    }
    return {};
}

void Afdd::limit_connections() {
    const size_t num_workers = crew_->supervisor().num_workers();
    const size_t num_free = num_free_descriptors() + gateway_->num_connections();
    const size_t num_max = num_connections_within(num_free, num_workers);
    if (num_max < config_.connections_max) {
        log::warn(
            "at most {} connections instead of connections_max = {}: {} more files can be opened, "
            "and {} are kept for the workers; raise the limit of open files (ulimit -n)",
            num_max,
            config_.connections_max,
            num_free,
            num_files_for_workers(num_workers));
    }
    gateway_->limit_connections(num_max);
}

Result<> Afdd::open_doors() {
    AFD_ASSIGN(
        doors_,
        Doors::open({.loop = &loop_,
                     .config = &config_,
                     .setup = &setup_,
                     .texts = texts_.get(),
                     .gateway = gateway_.get(),
                     .predecessor = takeover_ == nullptr ? nullptr : &takeover_->predecessor()}));
    return {};
}

// False: this afdd ends.
bool Afdd::open_for_takeover() {
    if (const Result<> done = open_doors(); !done.ok()) {
        const ExitCode code = exit_code_of_taking(done.error().code);
        fail(code, done.error());
        end(code, kGraceMs);
        return false;
    }
    takeover_->on_ready(*doors_);
    return true;
}

void Afdd::watch_signals() {
    for (const int signal : {SIGTERM, SIGINT}) {
        signals_.push_back(std::make_unique<SignalWatcher>(
            loop_, signal, [this, signal] { on_end_signal(signal); }));
    }
    signals_.push_back(std::make_unique<SignalWatcher>(loop_, SIGHUP, [this] { reload(); }));
    signals_.push_back(std::make_unique<SignalWatcher>(
        loop_, SIGUSR1, [this] { log::info("SIGUSR1: {}", state_text(gateway_->status())); }));
}

// Only what a running instance can change.
void Afdd::reload() {
    life_.begin_reload();
    if (const Result<> done = reload_config(); !done.ok()) {
        log::error("SIGHUP: nothing changes: {}", done.error().message);
    }
    life_.end_reload();
}

// All of it or nothing.
Result<> Afdd::reload_config() {
    AFD_ASSIGN(const Config config, surroundings_.reload());
    HttpServices* const http = this->http();
    ApiKeys keys;
    if (http != nullptr) {
        // The file that was named at the start; a key from the environment stays what it was.
        AFD_ASSIGN(keys, load_api_keys(config_));
    }
    if (hosts_ != nullptr) AFD_TRY(hosts_->renew_identity());
    if (http != nullptr) http->keys = std::move(keys);
    set_log_level(config.log_level);
    crew_->set_log_level(config.log_level);
    resizer_->set_log_level(config.log_level);
    log::info("SIGHUP: log_level is {}; every other option stays as it was at the start{}{}",
              config.log_level,
              http == nullptr ? "" : "; API keys were read again",
              hosts_ == nullptr ? "" : "; certificates were read again");
    return {};
}

void Afdd::say_heartbeat() {
    const auto line =
        heartbeat_.next(gateway_->status(), gateway_->requests(), HeartbeatLine::kPeriodMs);
    if (!line) return;
    log::info("{}", *line);
    life_.say_status(*line);
}

void Afdd::look_at_links() {
    client::Status status;
    crew_->supervisor().fill_status(status);
    if (hosts_ != nullptr) hosts_->fill_status(status);
    for (const LinkWatch::News& news :
         links_.look(status, setup_.ucx_network().host, loop_.now_ms())) {
        if (!news.is_down) {
            log::info("{}", news.text);
            continue;
        }
        log::error(
            "{}; it has been so for {} s, and requests over this link end at round_timeout_ms: "
            "check ucx_host and the firewalls of both hosts (docs/hosts.md, Ports)",
            news.text,
            LinkWatch::kDownMs / 1000);
    }
}

void Afdd::on_end_signal(int signal) {
    switch (end_signals_.on_signal(loop_.now_ms())) {
        case EndSignals::Meaning::kDrain:
            if (draining_) log::info("{}: it drains already", ::strsignal(signal));
            drain(::strsignal(signal));
            return;
        case EndSignals::Meaning::kSame:
            log::debug(
                "{} within {} ms of the first: the same", ::strsignal(signal), EndSignals::kSameMs);
            return;
        case EndSignals::Meaning::kStopNow:
            log::warn("{} again: stopping at once", ::strsignal(signal));
            // Asked before end(), which fails them all.
            const bool unfinished = gateway_->num_in_flight() > 0;
            end(unfinished ? ExitCode::kDrainTimedOut : exit_code_, 0);
            return;
    }
}

void Afdd::serve() {
    watch_signals();
    if (takeover_ != nullptr) {
        takeover_->begin(loop_, *gateway_, life_, setup_.lock());
    }
    crew_->supervisor().start(*gateway_, *this);
    life_.begin();
    heartbeat_timer_.start(HeartbeatLine::kPeriodMs, HeartbeatLine::kPeriodMs);
    if (config_.transport == Transport::kUcx) {
        link_timer_.start(LinkWatch::kPeriodMs, LinkWatch::kPeriodMs);
    }
    if (!config_.spawn) {
        log::info(
            "waiting for workers that are started by hand: afd-attention-worker "
            "--instance {0} --index 0..{1}, afd-ffn-worker --instance {0} --index 0..{2}",
            config_.instance,
            config_.attention_workers - 1,
            config_.ffn_workers - 1);
    }
    loop_.run();
    signals_.clear();
    if (hosts_ != nullptr) hosts_->say_over();
    log::info(
        "ended: {} requests served, {} failed", gateway_->num_finished(), gateway_->num_failed());
}

void Afdd::send(uint32_t session, const control::SupervisorMessage& message) {
    crew_->supervisor().send(session, message);
}

void Afdd::excuse_deaths() {
    crew_->supervisor().excuse_deaths();
}

Result<> Afdd::answer_context(const client::GetContext& asked, client::Context& answer) {
    AFD_ASSIGN(const control::Role role, crew_->workers().find(asked));
    if (asked.lanes()) AFD_TRY(check_lanes(crew_->layout()));
    if (asked.has_run_flag()) {
        // Who drains or restarts a worker means one that a resize is about to end.
        AFD_TRY(resizer_->check_idle());
        crew_->supervisor().set_run_flag(role, asked.index(), asked.run_flag());
    }
    answer = crew_->workers().context(role, asked.index());
    if (asked.lanes()) list_lanes(crew_->layout(), asked, answer);
    return {};
}

Result<> Afdd::on_upgrade_asked() {
    return upgrader_->begin();
}

Result<> Afdd::on_resize_asked(const client::Resize& asked) {
    AFD_TRY(check_one_host());
    AFD_TRY(upgrader_->check_idle());
    return resizer_->begin(asked);
}

std::string Afdd::metrics_text(const client::Status& status,
                               const RequestMetrics& requests,
                               const HopTimes& hops) const {
    return crew_->metrics().text(
        status, requests, hops, http() == nullptr ? nullptr : &http()->metrics);
}

void Afdd::fill_status(client::Status& status) const {
    status.set_numeric_class(crew_->layout().identity().numeric_class);
    status.set_kv_dtype(std::string(ops::name_of(config_.kv_dtype)));
    const model::ModelConfig& model = setup_.model().config();
    const model::KvShape shape = model::kv_shape(model);
    status.set_kv_bytes_per_token(shape.bytes_per_token());
    if (const auto windows = model::LayerWindows::of(model); windows.window > 0) {
        status.set_kv_windowed_bytes_per_token(windows.num_windowed() *
                                               shape.layer_bytes_per_token);
        status.set_kv_windowed_tokens(
            windows.room(model, config_.kv_tokens, static_cast<uint32_t>(config_.max_sequences))
                .num_tokens);
    }
    status.set_dispatch_dtype(std::string(name_of(crew_->layout().identity().row_dtype)));
    status.set_transport(std::string(name_of(config_.transport)));
    status.set_resize(resizer_->text());
    status.set_upgrade(has_predecessor() ? takeover_->text() : upgrader_->text());
    crew_->layout().fill_status(status);
    crew_->supervisor().fill_status(status);
    if (hosts_ != nullptr) hosts_->fill_status(status);
    if (const std::string down = links_.reason();
        !down.empty() && status.state() == kInstanceReady) {
        status.set_state(std::string(kInstanceDegraded));
        status.set_reason(down);
    }
}

void Afdd::on_stop_asked() {
    drain("a client asks to stop");
}

void Afdd::on_drained() {
    end(ExitCode::kOk, kGraceMs);
}

void Afdd::on_given_up(const std::string& why) {
    if (ending_ || resizer_->on_serving_given_up(why)) return;
    log::error("cannot serve: {}", why);
    if (takeover_ != nullptr) takeover_->say_failed(why);
    end(ExitCode::kWorkerFailed, kGraceMs);
}

void Afdd::on_service(const ServiceState& state) {
    gateway_->set_service(state);
    switch (state.level) {
        case ServiceState::Level::kReady:
            log::info("requests are served again");
            return;
        case ServiceState::Level::kHalted:
            log::warn("nobody is served, requests wait: {}", state.reason);
            return;
        case ServiceState::Level::kDegraded:
            log::error("degraded: {}", state.reason);
            return;
        case ServiceState::Level::kFailed:
            log::error("no service, new requests are refused: {}", state.reason);
            return;
    }
}

void Afdd::on_all_gone() {
    if (!ending_ && resizer_->on_serving_gone()) return;
    if (crew_->supervisor().has_processes() || resizer_->has_processes()) return;
    loop_.stop();
}

void Afdd::on_host_joined(const std::string& name) {
    if (!ending_) crew_->supervisor().on_host_joined(name);
}

// Its workers' stand-ins see it, too, and end; the slots then wait for the host.
void Afdd::on_host_left(const std::string& /*name*/) {
    const std::string missing = hosts_->missing_text();
    if (!ending_) {
        log::info("waiting for hosts to join at {}: {}", hosts_->address().text(), missing);
    }
}

void Afdd::on_all_ready() {
    if (resizer_->on_serving_ready()) return;
    if (takeover_ != nullptr && !open_for_takeover()) return;
    const double seconds = static_cast<double>(uv_hrtime() / 1000 - started_us_) / 1e6;
    const std::string ffn =
        config_.colocated() ? "colocated" : fmt::format("{} ffn", config_.ffn_workers);
    log::info("ready in {:.2f} s: {}, {} attention, {}, {}; {}",
              seconds,
              setup_.model().directory(),
              config_.attention_workers,
              ffn,
              crew_->layout().identity().numeric_class,
              doors_->addresses());
    if (const std::string why = gateway_->context_note(); !why.empty()) log::info("{}", why);
    // Not for the manager yet, nor for users: the one before says when.
    if (takeover_ != nullptr) return;
    const std::string where =
        config_.socket.empty() ? "--instance " + config_.instance : "--socket " + config_.socket;
    log::info(
        "try: afdctl {0} generate \"Once upon a time\"   |   afdctl {0} status   |   "
        "afd-load {0}   (Ctrl-C drains)",
        where);
    life_.say_ready("serving " + setup_.model().directory());
}

void Afdd::drain(const char* why) {
    if (draining_) return;
    draining_ = true;
    log::info("{}: draining {} requests", why, gateway_->num_in_flight());
    // Before drain(), which ends the instance at once if nothing is in flight.
    drain_timer_.start(config_.drain_timeout_ms);
    life_.say_stopping(fmt::format("draining {} requests", gateway_->num_in_flight()),
                       config_.drain_timeout_ms + kGraceMs);
    if (takeover_ != nullptr) takeover_->say_ending();
    gateway_->drain();
    resizer_->cancel();
    upgrader_->cancel();
}

void Afdd::end(ExitCode code, uint64_t grace_ms) {
    // A second call may only be more urgent; the first reason stays.
    if (!ending_) exit_code_ = code;
    ending_ = true;
    draining_ = true;
    drain_timer_.stop();
    // Clients hear it before the workers go: from here on a lost worker is no reason for a replay.
    gateway_->fail_all(unavailable("afdd is ending; send the request again later"));
    upgrader_->cancel();
    resizer_->shut_down(grace_ms);
    crew_->supervisor().shut_down(grace_ms);
}

}  // namespace afd::daemon
