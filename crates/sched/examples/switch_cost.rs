//! What a switch costs the host: tasks of one group on one CPU block, are woken and picked.
//!
//!     cargo run --release -p vruntime-sched --example switch_cost [kernel file] [tasks]

use std::time::Instant;
use vruntime_base::{Cpu, CpuMask, Ledger, Noise, Ns, TaskId};
use vruntime_machine::Machine;
use vruntime_sched::cx::{Cx, Shared, WakeStats};
use vruntime_sched::domains::Domains;
use vruntime_sched::registry;
use vruntime_sched::release::Release;
use vruntime_sched::scheduler::*;
use vruntime_sched::task::*;

fn main() {
    let mut args = std::env::args().skip(1);
    let file = args.next().unwrap_or("kernels/v6.1.toml".into());
    let nr_tasks: usize = args.next().map_or(10, |n| n.parse().expect("a number of tasks"));
    let text = std::fs::read_to_string(&file).expect("a kernel file");
    let release: Release = toml::from_str(&text).expect("a kernel");
    let spec = vruntime_formats::machine_file::builtin_machine("uma-8").expect("a machine");
    let mut machine = Machine::new(&spec).expect("a machine");
    let n = machine.topo.nr_cpus();
    let domains = Domains::build(&machine.topo, &release);
    let mut s = registry::scheduler("linux", &machine.topo, &domains, &release).expect("linux");
    let task = |policy, tg| Task { policy, tg, state: TaskState::Running, ..Task::new(Cpu(0), n) };
    let rq = |c: usize| Rq {
        avg_idle: Ns::from_ms(1),
        max_idle_balance_cost: Ns::from_us(500),
        ..Rq::idle(Cpu::from_ix(c))
    };
    let mut sh = Shared {
        wakes: vec![WakeStats::default(); domains.nr_slots()],
        domains,
        tasks: vec![task(Policy::Idle, TgId(0)); n],
        rqs: (0..n).map(rq).collect(),
        loads: vec![RqLoad::default(); n],
        affinities: Affinities::new(n),
        nohz_idle: CpuMask::EMPTY,
        ledger: Ledger::new(n),
        noise: Noise::new(1),
        accounted: None,
        timers: vec![],
        release,
    };
    let mut resched = Vec::new();
    let mut now = Ns::from_ms(1);
    let cpu = Cpu(0);
    macro_rules! hook {
        (|$s:ident, $cx:ident| $body:expr) => {{
            sh.rqs[0].clock = now;
            machine.event_time = now;
            let mut cx = Cx {
                now,
                cpu,
                sh: &mut sh,
                machine: &mut machine,
                cost: Ns::ZERO,
                slowdown: 1024,
                resched: &mut resched,
            };
            let ($s, $cx) = (&mut *s, &mut cx);
            let r = $body;
            resched.clear();
            r
        }};
    }
    let tg = hook!(|s, cx| s.task_group_new(cx, TgId(0)));
    for _ in 0..nr_tasks {
        let p = TaskId::from_ix(sh.tasks.len());
        sh.tasks.push(task(Policy::Normal, tg));
        hook!(|s, cx| {
            s.task_new(cx, p, None);
            s.task_fork_place(cx, p);
            s.enqueue_task(cx, cpu, p, EnqueueFlags { initial: true, ..Default::default() });
        });
        sh.tasks[p.ix()].on_rq = true;
    }
    let mut asleep = std::collections::VecDeque::new();
    let rounds = 2_000_000u32;
    let t0 = Instant::now();
    for _ in 0..rounds {
        now += Ns(2_000);
        let curr = sh.rqs[0].curr;
        if curr.ix() >= n {
            sh.tasks[curr.ix()].state = TaskState::Interruptible;
            let sleep = DequeueFlags { sleep: true, ..DequeueFlags::default() };
            sh.tasks[curr.ix()].on_rq = !hook!(|s, cx| s.dequeue_task(cx, cpu, curr, sleep));
            asleep.push_back(curr);
        }
        if let Pick::Task(p) = hook!(|s, cx| s.pick_next_task(cx, cpu)) {
            sh.rqs[0].curr = p;
        }
        if asleep.len() > nr_tasks / 2 {
            let p = asleep.pop_front().expect("somebody sleeps");
            let delayed = sh.tasks[p.ix()].on_rq;
            sh.tasks[p.ix()].state = TaskState::Running;
            let flags = EnqueueFlags { wakeup: !delayed, delayed, ..Default::default() };
            hook!(|s, cx| {
                s.enqueue_task(cx, cpu, p, flags);
                s.wakeup_preempt(cx, cpu, p, WakeFlags::default());
            });
            sh.tasks[p.ix()].on_rq = true;
        }
    }
    let ns = t0.elapsed().as_nanos() as f64 / f64::from(rounds);
    println!("{file}: {ns:.0} ns for dequeue + pick + enqueue + preemption check");
}
