//! Does a run end, and does it say the same twice?
use std::sync::Arc;
use vruntime_base::Ns;
use vruntime_kernel::program::*;
use vruntime_kernel::record::*;
use vruntime_kernel::simulate::run;

/// Two tasks pass a byte to and fro.
struct PingPong {
    n: u32,
}
struct Side {
    read: ChannelId,
    write: ChannelId,
    first: bool,
    n: u32,
}
impl Program for Side {
    fn next(&self, r: &mut Regs) -> Op {
        r.pc += 1;
        if r.i == self.n {
            return Op::Exit;
        }
        let write = (r.pc % 2 == 1) == self.first;
        if r.pc == 2 {
            r.pc = 0;
            r.i += 1;
        }
        if write {
            Op::Write { to: self.write, bytes: 4 }
        } else {
            Op::Read { from: self.read, bytes: 4 }
        }
    }
}
struct Main {
    a: ProgramId,
    b: ProgramId,
}
impl Program for Main {
    fn next(&self, r: &mut Regs) -> Op {
        r.pc += 1;
        let regs = Regs::default();
        match r.pc {
            1 => Op::Fork { program: self.a, regs, thread: false },
            2 => Op::Fork { program: self.b, regs, thread: false },
            3 => Op::MarkStart,
            4 => Op::WaitChildren,
            5 => Op::MarkStop,
            _ => Op::Exit,
        }
    }
}
impl Workload for PingPong {
    fn command_line(&self) -> String {
        "ping-pong".into()
    }
    fn description(&self) -> &'static str {
        "two tasks pass a byte to and fro"
    }
    fn build(&self, b: &mut Builder) {
        let g = b.progress_group(2 * u64::from(self.n));
        let x = b.channel(ChannelKind::Pipe, Some(g));
        let y = b.channel(ChannelKind::Pipe, Some(g));
        let n = self.n;
        let a = b.program(Side { read: x, write: y, first: true, n });
        let bb = b.program(Side { read: y, write: x, first: false, n });
        let main = b.program(Main { a, b: bb });
        b.root(main, Regs::default(), RootTask { pin: PIN.get(), ..Default::default() });
    }
    fn result(&self, t: Ns) -> String {
        t.to_string()
    }
}
thread_local! { static PIN: std::cell::Cell<Option<vruntime_base::Cpu>> = const { std::cell::Cell::new(None) }; }

#[test]
fn ping_pong() {
    for (pin, name, rel) in [
        (false, "uma-2", "v6.1"),
        (true, "uma-2", "v6.1"),
        (false, "spr-2s", "v6.12"),
        (true, "uma-2", "v6.12"),
    ] {
        PIN.set(pin.then_some(vruntime_base::Cpu(0)));
        let machine = Arc::new(vruntime_formats::machine_file::builtin_machine(name).unwrap());
        let text = std::fs::read_to_string(format!("../../kernels/{rel}.toml")).unwrap();
        let release: vruntime_sched::release::Release = toml::from_str(&text).unwrap();
        let spec = RunSpec {
            machine,
            release: Arc::new(release),
            workload: Arc::new(PingPong { n: 1000 }),
            seed: 1,
            sampling: Sampling::Full { limit: Ns::from_ms(10_000) },
            checks: true,
            timeline: 0,
        };
        let a = run(&spec).unwrap();
        let b = run(&spec).unwrap();
        println!(
            "{name} {rel} pin {pin}: time {:?} complete {} events {} {:?}\n{:?}\n{:?}\n{:?}",
            a.time, a.complete, a.events, a.counters, a.switches, a.placements, a.migrations
        );
        for (f, r, d) in &a.cpu_time {
            println!("   {:28} {:14} {}", f.name(), r.name(), d);
        }
        assert_eq!(a.ledger_gap, 0);
        assert_eq!(a.hash, b.hash);
        assert!(a.complete);
    }
}
