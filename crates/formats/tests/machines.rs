//! Every built-in machine loads, names its sources, and has the shape its description claims.

use std::collections::BTreeSet;
use vruntime_base::Cpu;
use vruntime_formats::machine_file::{builtin, builtin_machine, load_machine_str, sysfs_machine};
use vruntime_machine::{Arch, Cost, Costs, Distance, Line, Machine, NodeId, Topology};

fn machine(name: &str) -> Machine {
    let spec = builtin_machine(name).unwrap_or_else(|e| panic!("{e}"));
    Machine::new(&spec).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// CPUs, cores, LLCs, nodes, packages.
fn shape(t: &Topology) -> [usize; 5] {
    [t.nr_cpus(), t.nr_cores(), t.nr_llcs(), t.nr_nodes(), t.nr_packages()]
}

#[test]
fn all_load_under_their_names() {
    let names: Vec<&str> = builtin().iter().map(|&(n, _)| n).collect();
    let expected = [
        "cascadelake-2s",
        "genoa-2s",
        "icelake-2s",
        "l5420",
        "milan-2s",
        "numa-48",
        "power10-320",
        "power10-96",
        "spr-2s",
        "uma-2",
        "uma-8",
    ];
    for name in expected {
        assert!(names.contains(&name), "{name} is missing");
    }
    for name in names {
        let spec = builtin_machine(name).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(spec.name, name);
        assert!(!spec.sources.is_empty(), "{name} names no source");
        spec.check().unwrap();
    }
}

#[test]
fn shapes() {
    assert_eq!(shape(&machine("uma-2").topo), [2, 2, 1, 1, 1]);
    assert_eq!(shape(&machine("uma-8").topo), [8, 8, 1, 1, 1]);
    assert_eq!(shape(&machine("numa-48").topo), [48, 24, 2, 2, 2]);
    assert_eq!(shape(&machine("milan-2s").topo), [256, 128, 16, 2, 2]);
    assert_eq!(shape(&machine("genoa-2s").topo), [384, 192, 24, 2, 2]);
    assert_eq!(shape(&machine("spr-2s").topo), [224, 112, 2, 2, 2]);
    assert_eq!(shape(&machine("cascadelake-2s").topo), [88, 44, 2, 2, 2]);
    assert_eq!(shape(&machine("icelake-2s").topo), [128, 64, 2, 2, 2]);
    assert_eq!(shape(&machine("power10-320").topo), [320, 80, 80, 4, 2]);
    assert_eq!(shape(&machine("power10-96").topo), [96, 24, 24, 5, 3]);
    assert_eq!(shape(&machine("l5420").topo), [4, 4, 2, 1, 1]);
}

/// CPUs that CPU 0 sees in each class.
fn at_distance(t: &Topology, d: Distance) -> String {
    let in_class = |c: &Cpu| t.distance(Cpu(0), *c) == d;
    t.all().iter().filter(in_class).collect::<vruntime_base::CpuMask>().to_string()
}

fn classes(name: &str) -> [String; 6] {
    let m = machine(name);
    Distance::ALL.map(|d| at_distance(&m.topo, d))
}

#[test]
fn distances_from_cpu_0_on_x86() {
    assert_eq!(classes("uma-2"), ["0", "", "", "1", "", ""]);
    assert_eq!(classes("uma-8"), ["0", "", "", "1-7", "", ""]);
    assert_eq!(classes("l5420"), ["0", "", "1", "", "2-3", ""]);
    assert_eq!(classes("numa-48"), ["0", "24", "", "1-11,25-35", "", "12-23,36-47"]);
    assert_eq!(classes("spr-2s"), ["0", "112", "", "1-55,113-167", "", "56-111,168-223"]);
    assert_eq!(classes("cascadelake-2s"), ["0", "44", "", "1-21,45-65", "", "22-43,66-87"]);
    assert_eq!(classes("icelake-2s"), ["0", "64", "", "1-31,65-95", "", "32-63,96-127"]);
    let milan = ["0", "128", "", "1-7,129-135", "8-63,136-191", "64-127,192-255"];
    assert_eq!(classes("milan-2s"), milan);
    let genoa = ["0", "192", "", "1-7,193-199", "8-95,200-287", "96-191,288-383"];
    assert_eq!(classes("genoa-2s"), genoa);
}

#[test]
fn distances_from_cpu_0_on_power() {
    let rest = |to: u32| format!("1,3,5,7-{to}");
    let [same, smt, l2, llc, package, remote] = classes("power10-320");
    assert_eq!([same, smt, l2, llc], ["0", "2,4,6", "", ""]);
    assert_eq!((package, remote.as_str()), (rest(127), "128-319"));
    let [.., package, remote] = classes("power10-96");
    assert_eq!((package, remote.as_str()), (rest(31), "32-95"));
}

#[test]
fn distance_is_what_the_sets_say() {
    for (name, _) in builtin() {
        let t = machine(name).topo;
        for a in t.all().iter() {
            for b in t.all().iter() {
                let expected = if a == b {
                    Distance::Same
                } else if t.smt(a).has(b) {
                    Distance::Smt
                } else if t.l2(a).has(b) {
                    Distance::L2
                } else if t.llc(a).has(b) {
                    Distance::Llc
                } else if t.package_cpus(a).has(b) {
                    Distance::Package
                } else {
                    Distance::Remote
                };
                assert_eq!(t.distance(a, b), expected, "{name}: {a} {b}");
            }
        }
    }
}

#[test]
fn power_nodes_keep_their_numbers() {
    let t = machine("power10-96").topo;
    assert_eq!(t.arch(), Arch::Powerpc);
    let nodes: Vec<(u32, String)> = (0..t.nr_nodes())
        .map(|i| (t.node_number(NodeId::from_ix(i)), t.node_cpus(NodeId::from_ix(i)).to_string()))
        .collect();
    let expected = [(2, "0-7"), (3, "8-31"), (5, "32-39"), (6, "40-47"), (7, "48-95")];
    assert_eq!(nodes, expected.map(|(n, c)| (n, c.to_string())));
    assert_eq!(t.node_distance(t.node(Cpu(0)), t.node(Cpu(8))), 20);
    assert_eq!(t.node_distance(t.node(Cpu(0)), t.node(Cpu(95))), 40);
    assert_eq!(t.llc(Cpu(13)).to_string(), "9,11,13,15");
}

/// A pipe ping-pong on one CPU, half a round trip: a read that sleeps, a switch, the rest of that
/// read, a write that wakes. Published (Linux 6.6, i7 of the 11th generation): 1070 ns between
/// threads, 2410 ns between processes. The table must allow both.
#[test]
fn paths_add_up_to_the_published_ping_pong() {
    let spec = builtin_machine("uma-2").unwrap();
    let half = |c: &Costs, switch: u32| {
        let syscalls = 2 * (c.syscall_entry + c.syscall_exit) + 2 * c.user_loop;
        let pipe = 3 * (c.pipe_lock + c.pipe_unlock) + c.pipe_read + c.pipe_write + c.pipe_wait;
        let wake = c.wait_queue_wake + c.ttwu + c.select_base + c.enqueue_base + c.level;
        let sleep = c.dequeue_base + c.level + c.schedule_base + c.pick_base + c.pick_level;
        syscalls + pipe + wake + sleep + switch
    };
    let low = Costs::draw(&spec.costs, |_| 0);
    let mid = Costs::mid(&spec.costs);
    let high = Costs::draw(&spec.costs, |_| u64::MAX);
    for (published, switch) in
        [(1070, (|c| c.switch_same_mm) as fn(&Costs) -> u32), (2410, |c| c.switch_other_mm)]
    {
        let [low, mid, high] = [low, mid, high].map(|c| half(&c, switch(&c)));
        assert!(low <= published && published <= high, "{low} … {high} misses {published}");
        assert!(mid < 2 * published && published < 2 * mid, "{mid} for {published}");
    }
}

/// Whole paths as engineers quote them for x86 servers, ns; the parts in the table must add up.
#[test]
fn parts_add_up_to_the_quoted_wholes() {
    let c = Costs::mid(&builtin_machine("milan-2s").unwrap().costs);
    let enqueue = c.enqueue_base + c.level + c.pelt;
    let miss = c.line_transfer[Distance::Llc as usize];
    for (whole, sum, quoted) in [
        ("system call", c.syscall_entry + c.syscall_exit, 39..=150),
        ("local try_to_wake_up", c.ttwu + c.select_base + enqueue, 200..=400),
        (
            "schedule between threads",
            c.schedule_base + c.pick_base + c.pick_level + c.switch_same_mm,
            300..=600,
        ),
        ("queued wakeup, target side", c.flush_task + enqueue, 300..=600),
        ("tick", c.timer_irq + c.tick_base + c.tick_level + c.pelt, 1000..=3000),
        (
            "newidle of 16 CPUs",
            c.newidle_base + c.balance_domain + 16 * (c.balance_cpu + 2 * miss),
            1000..=3000,
        ),
    ] {
        assert!(quoted.contains(&sum), "{whole}: {sum}, quoted {quoted:?}");
    }
}

/// Bits for the cost of this name, other ones for every seed.
fn mixed(seed: u64, name: &str) -> u64 {
    name.bytes().fold(seed, |bits, b| (bits ^ u64::from(b)).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Every value of every machine is drawn from its own range: the ends by the least and the greatest
/// bits. `path_permille` multiplies the paths afterwards and is 1000 here.
#[test]
fn draws_stay_between_low_and_high() {
    for (name, _) in builtin() {
        let mut spec = builtin_machine(name).unwrap();
        let source = spec.path_permille.source.clone();
        spec.path_permille = Cost { low: 1000, mid: 1000, high: 1000, source };
        // By machine: name, value, range.
        let rows = |m: Machine| {
            let mut costs = m.costs;
            let mut rows: Vec<(String, u32, Cost)> = Vec::new();
            for row in spec.costs.iter() {
                let value = *costs.by_name_mut(row.name).unwrap();
                rows.push((row.name.into(), value, row.cost.clone()));
            }
            for (state, of) in m.idle.iter().zip(&spec.idle) {
                rows.push((of.name.clone(), state.exit_latency_ns, of.exit_latency.clone()));
            }
            for (k, of) in (1..).zip(&spec.smt_speed) {
                rows.push((format!("smt_speed.{k}"), m.smt_speed(k), of.clone()));
            }
            rows
        };
        for (cost, value, of) in rows(Machine::new(&spec).unwrap()) {
            assert_eq!(value, of.mid, "{name}: {cost}");
        }
        for (cost, value, of) in rows(Machine::draw(&spec, |_| 0).unwrap()) {
            assert_eq!(value, of.low, "{name}: {cost}");
        }
        for (cost, value, of) in rows(Machine::draw(&spec, |_| u64::MAX).unwrap()) {
            assert_eq!(value, of.high, "{name}: {cost}");
        }
        for seed in 1..=8 {
            for (cost, value, of) in rows(Machine::draw(&spec, |n| mixed(seed, n)).unwrap()) {
                assert!((of.low..=of.high).contains(&value), "{name}: {cost} {value}, {seed}");
            }
        }
    }
}

/// Paths are multiplied by what is drawn for `path_permille`, signals are not.
#[test]
fn a_drawn_speed_of_the_cores_is_that_of_the_paths() {
    let spec = builtin_machine("l5420").unwrap();
    let draw = |permille: u64| {
        Machine::draw(&spec, |n| if n == "path_permille" { permille } else { 0 }).unwrap().costs
    };
    let (low, high) = (draw(0), draw(u64::MAX));
    let scaled = |permille: u32| (spec.costs.ttwu.low * permille + 500) / 1000;
    assert_eq!(low.ttwu, scaled(spec.path_permille.low));
    assert_eq!(high.ttwu, scaled(spec.path_permille.high));
    assert!(low.ttwu < high.ttwu);
    assert_eq!(low.line_transfer, high.line_transfer);
}

/// With overlapping ranges the draw would have three busy threads run faster than two.
#[test]
fn more_busy_threads_are_never_drawn_faster() {
    let mut spec = builtin_machine("power10-96").unwrap();
    for speed in &mut spec.smt_speed[1..] {
        (speed.low, speed.mid, speed.high) = (300, 400, 500);
    }
    let draw = |two: u64, three: u64| {
        let bits = |name: &str| match name {
            "smt_speed.2" => two,
            "smt_speed.3" => three,
            _ => u64::MAX,
        };
        let m = Machine::draw(&spec, bits).unwrap();
        [1, 2, 3, 4].map(|busy| m.smt_speed(busy))
    };
    assert_eq!(draw(0, u64::MAX), [1024, 300, 300, 300]);
    assert_eq!(draw(u64::MAX, 0), [1024, 500, 300, 300]);
}

#[test]
fn cost_names_are_drawn_once_each() {
    let spec = builtin_machine("spr-2s").unwrap();
    let mut seen = BTreeSet::new();
    Machine::draw(&spec, |name| {
        assert!(seen.insert(name.to_string()), "{name} drawn twice");
        0
    })
    .unwrap();
    let listed: BTreeSet<String> = spec.costs.iter().map(|r| r.name.to_string()).collect();
    assert!(listed.is_subset(&seen));
}

#[test]
fn mistakes_are_named() {
    let (_, text) = builtin().iter().find(|(n, _)| *n == "milan-2s").unwrap();
    let says = |text: &str| load_machine_str(text, "x.toml").unwrap_err().to_string();
    let wrong = text.replace("inherit = \"x86-server\"", "inherit = \"x86-servers\"");
    assert_eq!(
        says(&wrong),
        "x.toml:4: no cost table named `x86-servers`, nearest is `x86-server`"
    );
    let wrong = text.replace("cores_per_llc = 8", "cores_per_llc = 7");
    let line = text.lines().position(|l| l.starts_with("cores_per_llc")).unwrap() + 1;
    let expected = format!(
        "x.toml:{line}: topology.regular.cores_per_llc: found 7, expected a divisor of \
         cores_per_node = 64 (nearest: 8)"
    );
    assert_eq!(says(&wrong), expected);
    let wrong = text.replace("\nmhz = ", "\nmgz = ");
    assert_eq!(says(&wrong), "x.toml:7: unknown key `mgz`, nearest is `mhz`");
    let wrong = text.replace("numbering", "\nnumbering = ");
    assert!(says(&wrong).starts_with("x.toml:"), "{}", says(&wrong));
    let wrong = format!("{text}\n[costs.tick_bas]\nlow = 1\nmid = 1\nhigh = 1\nsource = 'x'\n");
    assert!(says(&wrong).ends_with("unknown key `tick_bas`, nearest is `tick_base`"));
    // The first line that holds its letters is not the one that has the key.
    let (_, text) = builtin().iter().find(|(n, _)| *n == "uma-8").unwrap();
    let line = text.lines().position(|l| l.contains("\"no SMT\"")).unwrap();
    let change =
        |(i, l): (usize, &str)| if i == line { l.replace("where", "wher") } else { l.into() };
    let wrong: Vec<String> = text.lines().enumerate().map(change).collect();
    let expected = format!("x.toml:{}: unknown key `wher`, nearest is `where`", line + 1);
    let wrong = wrong.join("\n");
    assert_eq!(says(&wrong), expected);
    assert_eq!(says(&wrong.replace("wher =", "\"wher\" =")), expected);
}

/// The share of `tg->load_avg` on 224 CPUs that the L2-queued-wakeups thread shows: when all CPUs
/// write it, an access costs many transfers; when writes are rare, a read costs about one.
#[test]
fn a_hot_group_line_queues_and_a_quiet_one_does_not() {
    let read_cost = |write_every: u64| {
        let mut m = machine("spr-2s");
        let n = m.topo.nr_cpus();
        let mut ready = vec![0u64; n];
        let (mut reads, mut spent) = (0, 0);
        for i in 0..100_000u64 {
            let c = (0..n).min_by_key(|&c| (ready[c], c)).unwrap();
            let (cpu, now) = (Cpu::from_ix(c), vruntime_base::Ns(ready[c]));
            let line = Line::TgLoadAvg(0);
            let write = i % write_every == 0;
            let cost = match write {
                true => m.lines.write(line, cpu, now, &m.costs, &m.topo),
                false => m.lines.read(line, cpu, now, &m.costs, &m.topo),
            };
            if !write {
                reads += 1;
                spent += cost.total().0;
            }
            ready[c] += cost.total().0 + 4_000;
        }
        spent / reads
    };
    let (hot, quiet) = (read_cost(3), read_cost(50));
    assert!(hot > 1_000, "hot {hot}");
    assert!(quiet < 300, "quiet {quiet}");
}

#[test]
fn reads_a_sysfs_tree() {
    let root = std::env::temp_dir().join(format!("vruntime-sysfs-{}", std::process::id()));
    let put = |at: &str, text: &str| {
        let path = root.join("devices/system").join(at);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    };
    put("cpu/online", "0-7");
    put("node/online", "0-2");
    for (node, cpus, distance) in [(0, "0-1,4-5", "10 21 12"), (1, "2-3,6-7", "21 10 30")] {
        put(&format!("node/node{node}/cpulist"), cpus);
        put(&format!("node/node{node}/distance"), distance);
    }
    put("node/node2/cpulist", "");
    put("node/node2/distance", "12 30 10");
    for c in 0..8 {
        let (core, socket) = (c % 4, c % 4 / 2);
        let threads = format!("{core},{}", core + 4);
        let package = ["0-1,4-5", "2-3,6-7"][socket];
        put(&format!("cpu/cpu{c}/topology/core_cpus_list"), &threads);
        put(&format!("cpu/cpu{c}/topology/package_cpus_list"), package);
        let caches = [
            (1, "Data", "32K", threads.as_str()),
            (1, "Instruction", "32K", &threads),
            (2, "Unified", "1024K", &threads),
            (3, "Unified", "16384K", package),
        ];
        for (i, (level, kind, size, shared)) in caches.into_iter().enumerate() {
            let at = format!("cpu/cpu{c}/cache/index{i}");
            put(&format!("{at}/level"), &level.to_string());
            put(&format!("{at}/type"), kind);
            put(&format!("{at}/size"), size);
            put(&format!("{at}/shared_cpu_list"), shared);
        }
    }
    let spec = sysfs_machine(&root).unwrap_or_else(|e| panic!("{e}"));
    std::fs::remove_dir_all(&root).unwrap();
    let m = Machine::new(&spec).unwrap();
    assert_eq!(shape(&m.topo), [8, 4, 2, 2, 2]);
    assert_eq!(m.topo.node_distance(NodeId(1), NodeId(0)), 21);
    let expected = ["0", "4", "", "1,5", "", "2-3,6-7"];
    assert_eq!(Distance::ALL.map(|d| at_distance(&m.topo, d)), expected);
    assert_eq!((spec.caches.l2_kib, spec.caches.llc_mib), (1024, 16));
    // What was read can be written, and read again.
    let text = toml::to_string(&spec).unwrap();
    assert_eq!(load_machine_str(&text, "host.toml").unwrap(), spec);
}
