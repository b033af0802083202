// SPDX-License-Identifier: Apache-2.0
#include "daemon/afdd/afdd.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>

#include "daemon/client_socket/socket_front_end.h"
#include "daemon/config/instance_geometry.h"
#include "daemon/config/placement_source.h"
#include "daemon/config/wire_choices.h"
#include "daemon/gateway/random_seed.h"
#include "daemon/metrics/metrics_status.h"
#include "daemon/program/logging.h"
#include "daemon/worker/worker_setup.h"
#include "model/weight_cache/weight_cache.h"
#include "schedule/context_fields.h"

namespace afd::daemon {

namespace {

// A worker leaves its loop at the next step; more than this and it hangs.
constexpr uint64_t kGraceMs = 3000;

// Every worker costs afdd a socket, a doorbell and more.
void raise_descriptor_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Two micro-batches keep both sides at work. Where the experts are local, or cores are short, there
// is nothing to overlap, and one larger micro-batch costs less.
uint32_t num_micro_batches(const Config& config, const CpuPlan& cpus) {
    if (config.micro_batches != 0) return static_cast<uint32_t>(config.micro_batches);
    return config.num_ffn_workers() == 0 || cpus.oversubscribed ? 1 : 2;
}

// How long a waiting thread stays awake. With more threads than cores it yields its core while it
// waits, so staying awake is free; it does so for as long as a peer on its core usually computes.
// Workers that were started by hand may be in other sessions, where a yield does not reach the
// peer: they sleep at once.
uint32_t spin_us(const Config& config, const CpuPlan& cpus) {
    constexpr uint64_t kYieldFactor = 100;
    if (!cpus.oversubscribed) return static_cast<uint32_t>(config.spin_us);
    if (!config.spawn) return 0;
    return static_cast<uint32_t>(std::min<uint64_t>(config.spin_us * kYieldFactor, UINT32_MAX));
}

control::Geometry instance_geometry(const Config& config,
                                    const CpuPlan& cpus,
                                    schedule::RowDtype row_dtype) {
    control::Geometry geometry;
    geometry.set_num_sessions(config.num_attention_workers());
    geometry.set_num_micro_batches(num_micro_batches(config, cpus));
    geometry.set_micro_batch_size(static_cast<uint32_t>(config.micro_batch_size));
    geometry.set_num_ffn_workers(config.num_ffn_workers());
    geometry.set_router(to_wire(config.router));
    geometry.set_shared_experts(to_wire(config.shared_experts));
    geometry.set_row_dtype(to_wire(row_dtype));
    return geometry;
}

// With dispatch = two_phase every prompt goes so, however short.
void set_two_phase(const Config& config, control::Welcome& welcome) {
    const uint64_t window = config.micro_batch_size;
    const uint64_t wanted = config.prefill_tokens_max;
    const uint64_t tokens_max = std::min(wanted == 0 ? 8 * window : wanted, config.kv_tokens);
    const uint64_t threshold = config.two_phase_threshold;
    welcome.set_prefill_tokens_max(static_cast<uint32_t>(tokens_max));
    welcome.set_two_phase_threshold(static_cast<uint32_t>(config.dispatch == Dispatch::kTwoPhase ? 0
                                                          : threshold == 0 ? window
                                                                           : threshold));
    welcome.set_two_phase_block(static_cast<uint32_t>(config.two_phase_block));
}

}  // namespace

Afdd::Afdd(Config config, std::string worker_directory)
    : config_(std::move(config)),
      worker_directory_(std::move(worker_directory)),
      started_us_(uv_hrtime() / 1000),
      drain_timer_(loop_, [this] {
          log::error("{} requests are not finished after drain_timeout_ms = {}; they end now",
                     gateway_->num_in_flight(),
                     config_.drain_timeout_ms);
          end(ExitCode::kDrainTimedOut, kGraceMs);
      }) {}

ExitCode Afdd::run() {
    raise_descriptor_limit();
    ::signal(SIGPIPE, SIG_IGN);
    // The order is that of cost and of blame: the lock first, because leftovers may be removed only
    // by the one afdd of that name; then what the user can mend; shared memory and sockets last.
    if (const auto done = take_instance(); !done.ok()) {
        const bool in_use = done.error().code == Code::kAlreadyExists;
        return fail(in_use ? ExitCode::kInUse : ExitCode::kUsage, done.error());
    }
    if (const auto done = open_model(); !done.ok()) return fail(ExitCode::kModel, done.error());
    if (const auto done = plan(); !done.ok()) return fail(ExitCode::kUsage, done.error());
    if (const auto done = create_segments(); !done.ok()) {
        const bool is_usage = done.error().code == Code::kInvalidArgument;
        return fail(is_usage ? ExitCode::kUsage : ExitCode::kSharedMemory, done.error());
    }
    if (const auto done = create_supervisor(); !done.ok()) {
        return fail(ExitCode::kInUse, done.error());
    }
    if (const auto done = create_gateway(); !done.ok()) return fail(ExitCode::kInUse, done.error());
    serve();
    return exit_code_;
}

ExitCode Afdd::fail(ExitCode code, const Error& error) {
    log::error("{}", error.message);
    return code;
}

Result<> Afdd::take_instance() {
    AFD_ASSIGN(paths_, instance_paths(config_.instance));
    if (!config_.socket.empty()) paths_.client_socket = config_.socket;
    AFD_TRY(create_runtime_directory(paths_.directory));
    AFD_ASSIGN(lock_, InstanceLock::acquire(paths_.lock_file, config_.instance));
    // Behind the lock: nobody else of this name can be using them.
    const size_t num_left = schedule::Segment::remove_leftovers(config_.instance);
    if (num_left > 0) {
        log::info("removed {} segments of an afdd that did not end properly", num_left);
    }
    return {};
}

Result<> Afdd::open_model() {
    AFD_ASSIGN(model_, model::ModelFiles::open(config_.model));
    AFD_ASSIGN(tokenizer_, model::Tokenizer::load(config_.model));
    return {};
}

// A directory that is named must be usable; the default one may fail, the workers then say so.
Result<> Afdd::choose_weight_cache() {
    if (config_.weight_cache == "off") return {};
    if (config_.weight_cache != "auto") {
        AFD_TRY(model::WeightCache::open(config_.weight_cache));
        weight_cache_directory_ = config_.weight_cache;
        return {};
    }
    weight_cache_directory_ = model::default_weight_cache_directory();
    if (weight_cache_directory_.empty()) {
        log::info(
            "packed weights are not kept: neither XDG_CACHE_HOME nor HOME is set; name a "
            "directory with weight_cache");
    }
    return {};
}

Result<> Afdd::plan() {
    AFD_TRY(choose_weight_cache());
    numeric_class_ = ops::best_numeric_class();
    if (config_.numeric_class != "auto") {
        const auto wanted = ops::parse_numeric_class(config_.numeric_class);
        if (!wanted || !ops::supported(*wanted)) {
            return Error{Code::kInvalidArgument,
                         fmt::format("numeric_class = {}: this processor cannot run it; the best "
                                     "that it can is {}",
                                     config_.numeric_class,
                                     ops::name_of(numeric_class_))};
        }
        numeric_class_ = *wanted;
    }
    AFD_ASSIGN(cpus_, plan_cpus(config_, allowed_cpus()));
    // Anew at each start, so that a worker of an afdd that died cannot attach to the next one's
    // segments.
    instance_id_ = draw_random();
    AFD_ASSIGN(const schedule::RowDtype row_dtype,
               choose_row_dtype(config_.dispatch_dtype, model_->config()));
    identity_ = make_identity(instance_id_, *model_, numeric_class_, config_.router, row_dtype);
    segment_prefix_ = schedule::segment_prefix(config_.instance, instance_id_);
    // Here and not with the segments: files and libraries that the user names are for the user to
    // mend.
    return list_rank_experts();
}

Result<> Afdd::create_segments() {
    AFD_ASSIGN(
        const schedule::Geometry geometry,
        make_geometry(model_->config(), instance_geometry(config_, cpus_, identity_.row_dtype)));
    AFD_ASSIGN(const schedule::WindowLayout layout, schedule::WindowLayout::compute(geometry));
    AFD_ASSIGN(schedule::InstanceSegments segments,
               schedule::InstanceSegments::create(segment_prefix_, layout, identity_));
    segments_ = std::make_unique<schedule::InstanceSegments>(std::move(segments));
    two_phase_segments_ = std::make_unique<TwoPhaseSegments>(
        segment_prefix_, geometry.num_sessions, config_.two_phase_memory_max);
    log::debug("segments {}-*: {} MiB",
               segment_prefix_,
               schedule::InstanceSegments::total_bytes(layout) >> 20);
    return {};
}

// What each rank holds of any MoE layer: a placement may differ from layer to layer.
Result<> Afdd::list_rank_experts() {
    rank_experts_.resize(config_.num_ffn_workers());
    if (rank_experts_.empty()) return {};
    const model::ModelConfig& model = model_->config();
    const uint32_t num_shared =
        dispatched_shared_slots(model, instance_geometry(config_, cpus_, identity_.row_dtype));
    AFD_ASSIGN(const auto placement, plan_placement(config_, layer_experts(model, num_shared)));
    const bool is_default =
        config_.expert_placement == "round_robin" && config_.replica_choice == "session";
    // Workers compute the default themselves. Anything else is resolved once, here: all of them
    // must have the same table.
    if (!is_default) expert_table_ = to_wire(placement);
    for (uint32_t rank = 0; rank < config_.num_ffn_workers(); ++rank) {
        for (const schedule::HeldExpert& held : placement.held_experts(rank)) {
            if (model.is_moe_layer(held.layer_id)) rank_experts_[rank].insert(held.expert);
        }
    }
    return {};
}

control::Welcome Afdd::common_welcome() const {
    control::Welcome welcome;
    welcome.set_instance(config_.instance);
    welcome.set_segment_prefix(segment_prefix_);
    *welcome.mutable_geometry() = instance_geometry(config_, cpus_, identity_.row_dtype);
    welcome.set_model_dir(model_->directory());
    welcome.set_numeric_class(std::string(ops::name_of(numeric_class_)));
    welcome.set_kv_tokens(config_.kv_tokens);
    welcome.set_max_sequences(static_cast<uint32_t>(config_.max_sequences));
    welcome.set_spin_us(spin_us(config_, cpus_));
    welcome.set_wait_report_ms(config_.wait_report_ms);
    welcome.set_round_timeout_ms(config_.round_timeout_ms);
    welcome.set_ffn_policy(to_wire(config_.ffn_policy));
    welcome.set_ffn_sync_group_size(static_cast<uint32_t>(config_.ffn_sync_group_size));
    welcome.set_ffn_scheduler(config_.ffn_scheduler);
    if (expert_table_) *welcome.mutable_experts() = *expert_table_;
    welcome.set_gather_us(static_cast<uint32_t>(config_.gather_us));
    welcome.set_oversubscribed(cpus_.oversubscribed);
    if (config_.two_phase()) set_two_phase(config_, welcome);
    welcome.set_instance_id(instance_id_);
    welcome.set_model_identity(model_->identity());
    welcome.set_weight_cache(weight_cache_directory_);
    return welcome;
}

Result<> Afdd::create_supervisor() {
    Supervisor::Plan plan;
    plan.config = config_;
    plan.cpus = cpus_;
    plan.control_socket = paths_.control_socket;
    plan.worker_directory = worker_directory_;
    plan.welcome = common_welcome();
    plan.heartbeat = [this](control::Role role, uint32_t index) {
        const schedule::ConstControlView view = role == control::FFN
                                                    ? segments_->ffn_control(index)
                                                    : segments_->attention_control(index);
        return schedule::read_heartbeat(view.heartbeat_words());
    };
    plan.run_flag = [this](control::Role role, uint32_t index) {
        return segments_->run_flag(
            role == control::FFN ? schedule::Role::kFfn : schedule::Role::kAttention, index);
    };
    plan.fill_metrics = [this](control::Role role, uint32_t index, client::Worker& worker) {
        if (role == control::FFN) {
            fill_ffn_metrics(Metrics(segments_->ffn_metrics(index)),
                             rank_experts_[index],
                             model_->config().num_experts,
                             worker);
        } else {
            fill_attention_metrics(
                Metrics(segments_->attention_metrics(index)), config_.num_ffn_workers(), worker);
        }
    };
    plan.acquire_segments = [this](uint32_t rank, const control::SegmentRequest& request) {
        return two_phase_segments_->acquire(rank,
                                            request.session(),
                                            request.round(),
                                            {request.receive_bytes(), request.return_bytes()});
    };
    plan.release_segments = [this](uint32_t rank, const control::SegmentRelease& release) {
        two_phase_segments_->release(rank, release.session(), release.round());
    };
    AFD_ASSIGN(supervisor_, Supervisor::create(loop_, std::move(plan)));
    return {};
}

Result<> Afdd::create_gateway() {
    ServedModel served;
    served.directory = model_->directory();
    served.vocab_size = model_->config().vocab_size;
    served.context_length = model_->config().context_length;
    served.stop_ids = model_->generation().eos_token_ids;
    served.tokenizer = &*tokenizer_;
    GatewayHost& host = *this;
    gateway_ = std::make_unique<Gateway>(
        loop_, config_, std::move(served), trace_sources(), *supervisor_, host);
    return create_front_ends();
}

Result<> Afdd::create_front_ends() {
    AFD_ASSIGN(front_ends_.emplace_back(),
               SocketFrontEnd::open(loop_, paths_.client_socket, *gateway_));
    return {};
}

void Afdd::watch_signals() {
    for (const int signal : {SIGTERM, SIGINT}) {
        signals_.push_back(std::make_unique<SignalWatcher>(loop_, signal, [this, signal] {
            if (draining_) {
                log::warn("{} again: stopping at once", ::strsignal(signal));
                // Asked before end(), which fails them all.
                const bool unfinished = gateway_->num_in_flight() > 0;
                end(unfinished ? ExitCode::kDrainTimedOut : exit_code_, 0);
            } else {
                drain(::strsignal(signal));
            }
        }));
    }
    signals_.push_back(std::make_unique<SignalWatcher>(loop_, SIGHUP, [] {
        log::info("SIGHUP is ignored: the configuration is read once, at the start");
    }));
}

void Afdd::serve() {
    watch_signals();
    supervisor_->start(*gateway_, *this);
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
    log::info(
        "ended: {} requests served, {} failed", gateway_->num_finished(), gateway_->num_failed());
}

std::vector<TraceSource> Afdd::trace_sources() const {
    std::vector<TraceSource> sources;
    for (uint32_t session = 0; session < config_.num_attention_workers(); ++session) {
        sources.push_back(
            {"attention", session, Metrics(segments_->attention_metrics(session)).trace()});
    }
    for (uint32_t rank = 0; rank < config_.num_ffn_workers(); ++rank) {
        sources.push_back({"ffn", rank, Metrics(segments_->ffn_metrics(rank)).trace()});
    }
    return sources;
}

Result<> Afdd::answer_context(const client::GetContext& asked, client::Context& answer) {
    const bool is_ffn = asked.role() == "ffn";
    const uint32_t num_workers =
        is_ffn ? config_.num_ffn_workers() : config_.num_attention_workers();
    if ((!is_ffn && asked.role() != "attention") || asked.index() >= num_workers) {
        return Error{
            Code::kNotFound,
            fmt::format("there is no worker {}{}; there are {} attention and {} ffn workers",
                        asked.role(),
                        asked.index(),
                        config_.num_attention_workers(),
                        config_.num_ffn_workers())};
    }
    if (asked.has_run_flag()) {
        const auto role = is_ffn ? schedule::Role::kFfn : schedule::Role::kAttention;
        segments_->set_run_flag(role, asked.index(), asked.run_flag());
    }
    const schedule::ConstControlView view = is_ffn ? segments_->ffn_control(asked.index())
                                                   : segments_->attention_control(asked.index());
    answer.set_role(asked.role());
    answer.set_index(asked.index());
    for (const schedule::ContextField& field : schedule::context_fields(view.context())) {
        client::ContextField& shown = *answer.add_fields();
        shown.set_name(std::string(field.name));
        shown.set_offset(field.offset);
        shown.set_size(field.size);
        shown.set_value(field.value);
        shown.set_meaning(std::string(field.meaning));
    }
    return {};
}

void Afdd::fill_status(client::Status& status) const {
    status.set_numeric_class(identity_.numeric_class);
    status.set_dispatch_dtype(std::string(name_of(identity_.row_dtype)));
    supervisor_->fill_status(status);
}

void Afdd::on_stop_asked() {
    drain("a client asks to stop");
}

void Afdd::on_drained() {
    end(ExitCode::kOk, kGraceMs);
}

void Afdd::on_given_up(const std::string& why) {
    if (ending_) return;
    log::error("cannot serve: {}", why);
    end(ExitCode::kWorkerFailed, kGraceMs);
}

void Afdd::on_all_gone() {
    loop_.stop();
}

void Afdd::on_all_ready() {
    const double seconds = static_cast<double>(uv_hrtime() / 1000 - started_us_) / 1e6;
    const std::string ffn =
        config_.colocated() ? "colocated" : fmt::format("{} ffn", config_.ffn_workers);
    log::info("ready in {:.2f} s: {}, {} attention, {}, {}; {}",
              seconds,
              model_->directory(),
              config_.attention_workers,
              ffn,
              identity_.numeric_class,
              front_ends_.front()->address());
    log::info(
        "try: afdctl --instance {0} generate \"Once upon a time\"   |   afdctl --instance "
        "{0} status   |   afd-load --instance {0}   (Ctrl-C drains)",
        config_.instance);
}

void Afdd::drain(const char* why) {
    if (draining_) return;
    draining_ = true;
    log::info("{}: draining {} requests", why, gateway_->num_in_flight());
    // Before drain(), which ends the instance at once if nothing is in flight.
    drain_timer_.start(config_.drain_timeout_ms);
    gateway_->drain();
}

void Afdd::end(ExitCode code, uint64_t grace_ms) {
    // A second call may only be more urgent; the first reason stays.
    if (!ending_) exit_code_ = code;
    ending_ = true;
    draining_ = true;
    drain_timer_.stop();
    // Clients hear it before the workers go: from here on a lost worker is no reason for a replay.
    gateway_->fail_all({Code::kUnavailable, "afdd is ending; send the request again later"});
    supervisor_->shut_down(grace_ms);
}

}  // namespace afd::daemon
