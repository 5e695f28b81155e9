use super::*;
use crate::topology::{Distance, NodeId};

fn regular(numbering: Numbering) -> Regular {
    Regular {
        sockets: 1,
        nodes_per_socket: 2,
        cores_per_node: 4,
        threads_per_core: 2,
        cores_per_l2: 2,
        cores_per_llc: 4,
        numbering,
        node_distance: vec![vec![10, 12], vec![12, 10]],
    }
}

/// "core / L2 / LLC / package / node" of a CPU.
fn sets(r: Regular, cpu: u16) -> String {
    let t = TopologySpec::Regular(r).build(Arch::X86).unwrap();
    let c = Cpu(cpu);
    let node = t.node_cpus(t.node(c));
    [t.smt(c), t.l2(c), t.llc(c), t.package_cpus(c), node].map(|m| m.to_string()).join(" / ")
}

#[test]
fn numberings() {
    let last = sets(regular(Numbering::SiblingsLast), 1);
    assert_eq!(last, "1,9 / 0-1,8-9 / 0-3,8-11 / 0-15 / 0-3,8-11");
    let adjacent = sets(regular(Numbering::SiblingsAdjacent), 1);
    assert_eq!(adjacent, "0-1 / 0-3 / 0-7 / 0-15 / 0-7");
    let power = sets(regular(Numbering::PowerSmt8), 1);
    assert_eq!(power, "1,3 / 0-3 / 0-7 / 0-15 / 0-7");
}

#[test]
fn all_classes_of_one_socket() {
    let t = TopologySpec::Regular(regular(Numbering::SiblingsLast)).build(Arch::X86).unwrap();
    let from_0 = [0, 8, 1, 2, 4].map(|c| t.distance(Cpu(0), Cpu(c)));
    assert_eq!(from_0, Distance::ALL[..5]);
    assert_eq!(t.node_distance(NodeId(0), NodeId(1)), 12);
}

#[test]
fn the_largest_machine() {
    let r = Regular {
        sockets: 8,
        nodes_per_socket: 1,
        cores_per_node: 64,
        cores_per_llc: 64,
        node_distance: (0..8)
            .map(|i| (0..8).map(|j| if i == j { 10 } else { 21 }).collect())
            .collect(),
        ..regular(Numbering::SiblingsLast)
    };
    let t = TopologySpec::Regular(r).build(Arch::X86).unwrap();
    assert_eq!((t.nr_cpus(), t.nr_cores(), t.nr_llcs(), t.nr_nodes()), (1024, 512, 8, 8));
    assert_eq!(t.distance(Cpu(0), Cpu(512)), Distance::Smt);
    assert_eq!(t.distance(Cpu(63), Cpu(64)), Distance::Remote);
}

fn error(spec: TopologySpec) -> String {
    spec.build(Arch::X86).unwrap_err().to_string()
}

#[test]
fn mistakes_are_named() {
    let r = regular(Numbering::SiblingsLast);
    let too_many = Regular { cores_per_node: 1000, cores_per_llc: 1000, ..r.clone() };
    assert_eq!(
        error(TopologySpec::Regular(too_many)),
        "topology.regular: found 4000 CPUs, expected at most 1024"
    );
    let flat = Regular { node_distance: vec![vec![10]], ..r.clone() };
    assert_eq!(
        error(TopologySpec::Regular(flat)),
        "node_distance: found none, and there are 2 nodes, expected 2 rows of 2 values"
    );
    let l2 = Regular { cores_per_l2: 3, ..r };
    assert!(error(TopologySpec::Regular(l2)).contains("a divisor of cores_per_llc = 4"));
}

fn masks() -> Masks {
    let pairs = || vec!["0-1".to_string(), "2-3".to_string()];
    Masks {
        smt: pairs(),
        l2: pairs(),
        llc: vec!["0-3".into()],
        packages: vec!["0-3".into()],
        nodes: vec!["0-3".into()],
        node_numbers: vec![0],
        node_distance: vec![vec![10]],
    }
}

#[test]
fn sets_must_nest_and_cover() {
    assert_eq!(TopologySpec::Masks(masks()).build(Arch::X86).unwrap().nr_cores(), 2);
    let crossing = Masks { l2: vec!["0,2".into(), "1,3".into()], ..masks() };
    assert_eq!(
        error(TopologySpec::Masks(crossing)),
        "core set of CPU 0: found 0-1, expected a part of its L2 set 0,2"
    );
    let overlapping = Masks { smt: vec!["0-2".into(), "2-3".into()], ..masks() };
    assert!(error(TopologySpec::Masks(overlapping)).starts_with("core set of CPU 0: found 0-2"));
    let missing = Masks { smt: vec!["0-1".into()], ..masks() };
    assert!(error(TopologySpec::Masks(missing)).starts_with("core set of CPU 2"));
    let outside = Masks { smt: vec!["0-9".into()], ..masks() };
    assert!(error(TopologySpec::Masks(outside)).contains("without holes"));
    let two = vec!["0-1".to_string(), "2-3".to_string()];
    let split = Masks {
        nodes: two,
        node_numbers: vec![0, 1],
        node_distance: vec![vec![10, 20], vec![20, 10]],
        ..masks()
    };
    assert!(error(TopologySpec::Masks(split)).contains("a part of its node set"));
}

#[test]
fn cpu_lists() {
    let list = |text| parse_cpulist(text, "here").map(|m| m.to_string());
    assert_eq!(list("0-3,8, 10-11\n").unwrap(), "0-3,8,10-11");
    assert_eq!(list("").unwrap(), "");
    for wrong in ["3-1", "a", "0-1024", "1-", "-"] {
        assert!(list(wrong).unwrap_err().to_string().starts_with("here: found `"), "{wrong}");
    }
}
