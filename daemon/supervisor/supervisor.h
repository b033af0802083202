// SPDX-License-Identifier: Apache-2.0
#pragma once

// Supervisor: all worker slots of an instance, for one number of workers, and their doorbells.
//
// It starts and restarts workers, hands every eventfd to the two sides that use it, rings all
// doorbells when a worker is gone (its last flag may have lost its ring, R9), and watches the
// heartbeats. It knows nothing of requests: the AttentionListener (the gateway) does. What concerns
// the instance as a whole goes to the InstanceListener (afdd).
//
// A resize has two of them: one whose workers serve, and one whose workers are to.

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/supervisor/attention_workers.h"
#include "daemon/supervisor/doorbells.h"
#include "daemon/supervisor/places.h"
#include "daemon/supervisor/round_memory.h"
#include "daemon/supervisor/service_state.h"
#include "daemon/supervisor/supervisor_plan.h"
#include "daemon/supervisor/voided_rounds.h"
#include "daemon/supervisor/worker_door.h"
#include "daemon/supervisor/worker_slot.h"

namespace afd::daemon {

class InstanceListener {
  public:
    virtual ~InstanceListener() = default;
    // Every worker has been ready once.
    virtual void on_all_ready() = 0;
    // A worker cannot be started: the instance has to end with ExitCode::kWorkerFailed.
    virtual void on_given_up(const std::string& why) = 0;
    // Whether it can serve has changed, or why it cannot. Only after on_all_ready().
    virtual void on_service(const ServiceState& state) = 0;
    // The end of Supervisor::shut_down(): every process is gone.
    virtual void on_all_gone() = 0;
};

class Supervisor final : public AttentionWorkers, public SlotOwner, public WorkerSlotListener {
  public:
    using Plan = SupervisorPlan;

    // Creates the eventfds and stands at the door; starts nothing.
    // REQUIRES: `loop` and `door` outlive the supervisor.
    // Errors: kResourceExhausted: descriptors.
    static Result<std::unique_ptr<Supervisor>> create(EventLoop& loop, WorkerDoor& door, Plan plan);
    ~Supervisor() override;

    // REQUIRES: both outlive the supervisor, or hand_over() names others before.
    void start(AttentionListener& attention, InstanceListener& instance);

    // From now on these hear of the workers, beginning with those that are ready and with a service
    // that is not. REQUIRES: started; both outlive the supervisor.
    void hand_over(AttentionListener& attention, InstanceListener& instance);
    // Goes on counting processes where `before` has ended, and those before that.
    void continue_counts(const Supervisor& before);

    // Every worker has been ready once.
    bool is_all_ready() const { return all_ready_; }
    // Every worker is ready now.
    bool is_complete() const;

    // Whether a process of a worker is there.
    bool has_processes() const;

    size_t num_workers() const override { return slots_.size(); }
    bool has_process(int pid) const override;
    Result<> give_slot(ControlChannel& channel, const control::Hello& hello, int pid) override;

    void send(uint32_t session, const control::SupervisorMessage& message) override;
    void excuse_deaths() override;

    // false: ends a worker, and starts no other before true. REQUIRES: there is such a worker.
    void set_run_flag(control::Role role, uint32_t index, bool runs);

    // A host is there: those of its workers that have waited for it start.
    void on_host_joined(const std::string& name);

    // The level of all workers from now on (set_log_level()), also of those to come.
    void set_log_level(const std::string& level);

    // Ends all workers: asks, and kills what is left after `grace_ms` (0: at once); on_all_gone()
    // follows, perhaps within the call. A second call can shorten the grace, and hears of the end
    // again. REQUIRES: started.
    void shut_down(uint64_t grace_ms);

    // State, workers and waits. The gateway adds what it knows of the attention workers.
    void fill_status(client::Status& status) const;

    void on_worker_ready(WorkerSlot& slot, const control::Ready& ready) override;
    void on_worker_events(WorkerSlot& slot, const control::Events& events) override;
    void on_worker_wait(WorkerSlot& slot) override;
    void on_segment_request(WorkerSlot& slot, const control::SegmentRequest& request) override;
    void on_segment_release(WorkerSlot& slot, const control::SegmentRelease& release) override;
    void on_worker_listens(WorkerSlot& slot, const control::Listening& listening) override;
    void on_void_request(WorkerSlot& slot, const control::VoidRequest& request) override;
    void on_worker_loaded(WorkerSlot& slot) override;
    void on_worker_gone(WorkerSlot& slot, const WorkerEnd& end) override;
    void on_worker_given_up(WorkerSlot& slot, const std::string& why) override;
    void on_worker_failing(WorkerSlot& slot) override;
    void on_worker_settled(WorkerSlot& slot) override;
    void on_worker_halted(WorkerSlot& slot) override;

  private:
    Supervisor(EventLoop& loop, WorkerDoor& door, Plan plan);
    void create_slots();
    std::unique_ptr<WorkerSlot> make_slot(control::Role role, uint32_t index);
    void complete_welcome(control::Role role, uint32_t index, control::Welcome& welcome);
    // How many processes have had the place, those of the crew before included.
    uint64_t num_processes(control::Role role, uint32_t index) const;
    void tell_place(const control::Place& place);
    void check_heartbeats();
    void send_log_level(WorkerSlot& slot) const;
    static void send_rank_state(WorkerSlot& session, const WorkerSlot& rank);
    void tell_rank_state(const WorkerSlot& rank);
    bool goes_on_without_lost_ranks() const;
    bool may_void(const WorkerSlot& slot, const control::VoidRequest& request) const;
    void tell_ready(const WorkerSlot& session) const;
    void check_ranks_have_come();
    void check_all_ready();
    void review_service();
    void tell_wait(const WorkerSlot& session) const;
    void check_all_gone();

    EventLoop& loop_;
    WorkerDoor& door_;
    const Plan plan_;
    AttentionListener* attention_listener_ = nullptr;
    InstanceListener* instance_listener_ = nullptr;
    Doorbells doorbells_;
    std::vector<std::unique_ptr<WorkerSlot>> attention_;
    std::vector<std::unique_ptr<WorkerSlot>> ffn_;
    std::vector<WorkerSlot*> slots_;   // All: attention workers, then FFN workers.
    std::vector<uint64_t> kv_tokens_;  // Of attention workers, as they said when they were ready.
    VoidedRounds voided_rounds_;
    Places places_;
    RoundMemory round_memory_;
    Timer heartbeat_timer_;
    Timer grace_timer_;
    // Processes that earlier supervisors had, also of workers that this one does not have.
    std::map<std::pair<control::Role, uint32_t>, uint32_t> num_earlier_;
    std::vector<bool> was_ready_;   // As slots_.
    bool have_ranks_come_ = false;  // Each FFN worker has been ready once.
    bool all_ready_ = false;
    ServiceState service_;
    bool shutting_down_ = false;
    std::string log_level_;  // Empty: that of the configuration.
};

}  // namespace afd::daemon
