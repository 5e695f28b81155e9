//! What a new task knows when it is first queued.
mod common;
use common::Messaging;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use vruntime_base::{Cpu, Ns, TaskId};
use vruntime_formats::{kernel_file, machine_file};
use vruntime_kernel::program::ChannelKind;
use vruntime_kernel::record::{RunSpec, Sampling};
use vruntime_kernel::simulate::run_with;
use vruntime_sched::cx::Cx;
use vruntime_sched::rr::Rr;
use vruntime_sched::scheduler::*;
use vruntime_sched::task::{Policy, TgId};

/// Round robin that looks at new tasks.
struct Looks {
    rr: Rr,
    elsewhere: Arc<AtomicU32>,
}

impl Scheduler for Looks {
    fn task_fork_place(&mut self, cx: &mut Cx, p: TaskId) {
        let t = cx.sh.task(p);
        assert_eq!(t.recent_used_cpu, cx.cpu, "where its parent forked, on {}", t.cpu);
        self.elsewhere.fetch_add(u32::from(t.cpu != cx.cpu), Ordering::Relaxed);
    }
    fn select_task_rq(&mut self, cx: &mut Cx, p: TaskId, prev: Cpu, f: WakeFlags) -> Placement {
        self.rr.select_task_rq(cx, p, prev, f)
    }
    fn dequeue_task(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, f: DequeueFlags) -> bool {
        self.rr.dequeue_task(cx, cpu, p, f)
    }
    fn wakeup_preempt(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, f: WakeFlags) {
        self.rr.wakeup_preempt(cx, cpu, p, f);
    }
    fn pick_next_task(&mut self, cx: &mut Cx, cpu: Cpu) -> Pick {
        self.rr.pick_next_task(cx, cpu)
    }
    fn enqueue_task(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, f: EnqueueFlags) {
        self.rr.enqueue_task(cx, cpu, p, f);
    }
    fn task_tick(&mut self, cx: &mut Cx, cpu: Cpu) -> TickWork {
        self.rr.task_tick(cx, cpu)
    }
    fn task_group_new(&mut self, cx: &mut Cx, parent: TgId) -> TgId {
        self.rr.task_group_new(cx, parent)
    }
    fn moved(&mut self) -> &mut Vec<Moved> {
        self.rr.moved()
    }
    fn set_policy(&mut self, cx: &mut Cx, p: TaskId, policy: Policy, prio: i8) {
        self.rr.set_policy(cx, p, policy, prio);
    }
}

/// `wake_up_new_task` writes it before it chooses a CPU.
#[test]
fn recent_used_cpu_of_a_new_task_is_where_it_was_forked() {
    let spec = RunSpec {
        sampling: Sampling::Full { limit: Ns::from_ms(1_000) },
        ..RunSpec::new(
            machine_file::builtin_machine("uma-8").unwrap(),
            kernel_file::kernel("v6.1").unwrap().release,
            Arc::new(Messaging {
                groups: 2,
                fds: 10,
                loops: 1,
                bytes: 100,
                kind: ChannelKind::Pipe,
            }),
        )
    };
    let elsewhere = Arc::new(AtomicU32::new(0));
    run_with(&spec, &|topo| Box::new(Looks { rr: Rr::new(topo), elsewhere: elsewhere.clone() }))
        .unwrap();
    assert!(elsewhere.load(Ordering::Relaxed) > 10);
}
