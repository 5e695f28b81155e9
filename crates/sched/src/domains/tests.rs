//! Domains of real machines, by hand from the rules in the [module text](super).

use super::*;
use crate::sample::{build, regular, sockets, v5_7, v6_1, v6_12};
use vruntime_machine::{Arch, Masks, Numbering, Regular, Topology, TopologySpec};

fn imbs(d: &Domains, c: Cpu) -> Vec<u32> {
    d.of(c).iter().map(|id| d.sd(*id).imb_numa_nr).collect()
}

#[test]
fn genoa_two_sockets() {
    let t = regular(Arch::X86, 2, 96, 2, 8);
    let d = Domains::build(&t, &v6_1());
    for c in [0, 95, 96, 383] {
        assert_eq!(d.describe(Cpu(c)), "SMT 2, MC 16, PKG 192, NUMA 384");
        assert_eq!(imbs(&d, Cpu(c)), [0, 0, 12, 12]);
        assert_eq!(d.sd_llc_size(Cpu(c)), 16);
    }
    // 192 cores, 24 LLCs, 2 packages, and the NUMA level once per node.
    assert_eq!(d.nr_domains(), 192 + 24 + 2 + 2);
    let mc = d.at(d.slots(Cpu(3)).start + 1);
    assert_eq!(mc.span.to_string(), "0-7,192-199");
    assert_eq!(mc.groups.len(), 8);
    assert_eq!(mc.groups[3].span.to_string(), "3,195");
    assert_eq!((mc.groups[3].weight, mc.groups[3].cores), (2, 1));
    assert!(mc.groups[3].flags.has(SdFlags::SHARE_CPUCAPACITY));
    assert_eq!(mc.group_of(Cpu(199)), 7);
    let numa = d.sd(d.of(Cpu(100))[3]);
    assert_eq!(numa.groups[0].span.to_string(), "96-191,288-383");
    assert_eq!(numa.groups[1].balance_mask.to_string(), "0-95,192-287");
    assert_eq!(d.group_cpus(&numa.groups[1]).len(), 192);
    assert!(numa.flags.has(SdFlags::SERIALIZE) && !numa.flags.has(SdFlags::PREFER_SIBLING));
}

#[test]
fn sapphire_rapids_drops_the_package() {
    let t = regular(Arch::X86, 2, 56, 2, 56);
    let d = Domains::build(&t, &v6_12());
    assert_eq!(d.describe(Cpu(7)), "SMT 2, MC 112, NUMA 224");
    assert_eq!(imbs(&d, Cpu(7)), [0, 0, 14]);
    let values = d.of(Cpu(7)).iter().map(|&id| {
        let sd = d.sd(id);
        (sd.imbalance_pct, sd.cache_nice_tries, sd.min_interval(), sd.max_interval())
    });
    let values: Vec<_> = values.collect();
    assert_eq!(values, [(110, 0, 2, 4), (117, 1, 112, 224), (117, 2, 224, 448)]);
    assert!(d.sd(d.of(Cpu(7))[1]).flags.has(SdFlags::PREFER_SIBLING));
    assert!(!d.cluster_active() && d.smt_active());
}

/// What is left uneven in node 0 shows from node 1, whose NUMA domain is its own. In node 1 itself
/// nothing is marked.
#[test]
fn a_mark_shows_in_all_domains_of_its_level() {
    let mut d = Domains::build(&regular(Arch::X86, 2, 12, 2, 12), &v6_1());
    let numa = |c: u16, d: &Domains| d.slots(Cpu(c)).end - 1;
    let (here, there) = (numa(0, &d), numa(12, &d));
    d.set_imbalanced(here, d.local(here), true);
    let marked = |slot| d.at(slot).groups.iter().map(|g| d.imbalanced(g)).collect::<Vec<_>>();
    assert_eq!((marked(here), marked(there)), (vec![true, false], vec![false, true]));
    let mc = d.slots(Cpu(0)).start + 1;
    assert!(!marked(mc).contains(&true));
}

#[test]
fn forty_eight_cpus_in_two_nodes() {
    let t = regular(Arch::X86, 2, 12, 2, 12);
    let d = Domains::build(&t, &v6_1());
    assert_eq!(d.describe(Cpu(0)), "SMT 2, MC 24, NUMA 48");
    assert!(d.share_llc(Cpu(0), Cpu(24)) && !d.share_llc(Cpu(0), Cpu(12)));
    assert_eq!(imbs(&d, Cpu(0)), [0, 0, 3]);
}

#[test]
fn uniprocessor_levels_vanish() {
    let d = Domains::build(&regular(Arch::X86, 1, 8, 1, 8), &v6_1());
    assert_eq!(d.describe(Cpu(0)), "MC 8");
    assert_eq!(d.sd_llc_size(Cpu(0)), 8);
    let d = Domains::build(&regular(Arch::X86, 1, 1, 1, 1), &v6_1());
    assert_eq!(d.describe(Cpu(0)), "");
    assert_eq!((d.sd_llc(Cpu(0)), d.sd_llc_size(Cpu(0))), (SdId::NONE, 1));
    let d = Domains::build(&regular(Arch::X86, 1, 4, 1, 1), &v6_1());
    assert_eq!(d.describe(Cpu(0)), "PKG 4");
    assert!(d.sd_llc(Cpu(0)).is_none() && !d.share_llc(Cpu(0), Cpu(1)));
}

#[test]
fn power_llc_is_the_small_core() {
    let t = regular(Arch::Powerpc, 2, 24, 4, 1);
    let d = Domains::build(&t, &v6_12());
    assert_eq!(d.describe(Cpu(0)), "SMT 4, PKG 96, NUMA 192");
    assert_eq!(d.sd(d.of(Cpu(0))[0]).span.to_string(), "0,2,4,6");
    assert_eq!(d.sd_llc_size(Cpu(5)), 4);
    assert_eq!(d.sd(d.sd_llc(Cpu(5))).imbalance_pct, 110);
    // PKG holds 96/4 LLCs.
    assert_eq!(imbs(&d, Cpu(0)), [0, 24, 24]);
}

#[test]
fn power9_has_a_cache_level() {
    let numbering = Numbering::PowerSmt8;
    let shape = Regular { cores_per_l2: 2, numbering, ..sockets(1, 8, 4, 2) };
    let t = build(Arch::Powerpc, shape);
    let d = Domains::build(&t, &v6_12());
    assert_eq!(d.describe(Cpu(0)), "SMT 4, CACHE 8, PKG 32");
    assert_eq!(d.sd_llc_size(Cpu(0)), 8);
    assert!(!d.cluster_active());
}

fn clusters() -> Topology {
    // 16 cores, four to an L2, one LLC.
    build(Arch::X86, Regular { cores_per_l2: 4, ..sockets(1, 16, 1, 16) })
}

#[test]
fn clusters_are_a_level_from_5_16_on_and_known_from_6_7_on() {
    let d = Domains::build(&clusters(), &v6_12());
    assert_eq!(d.describe(Cpu(0)), "CLS 4, MC 16");
    assert!(d.cluster_active());
    assert!(d.share_cluster(Cpu(4), Cpu(7)) && !d.share_cluster(Cpu(3), Cpu(4)));
    assert!(d.sd(d.sd_llc(Cpu(0))).groups[0].flags.has(SdFlags::CLUSTER));
    let d = Domains::build(&clusters(), &v6_1());
    assert_eq!(d.describe(Cpu(0)), "CLS 4, MC 16");
    assert!(!d.cluster_active() && d.share_cluster(Cpu(3), Cpu(4)));
    assert_eq!(Domains::build(&clusters(), &v5_7()).describe(Cpu(0)), "MC 16");
}

#[test]
fn several_nodes_a_package_use_the_node_level() {
    let shape = Regular {
        nodes_per_socket: 2,
        node_distance: (0..4)
            .map(|a: u32| {
                let d = |b: u32| {
                    if a == b {
                        10
                    } else if a / 2 == b / 2 {
                        12
                    } else {
                        32
                    }
                };
                (0..4).map(d).collect()
            })
            .collect(),
        ..sockets(2, 16, 1, 8)
    };
    let t = build(Arch::X86, shape);
    let d = Domains::build(&t, &v6_12());
    assert_eq!(d.describe(Cpu(0)), "MC 8, NODE 16, NUMA 32, NUMA 64");
    // imb 2 at NODE (two LLCs); the first NUMA level spans 32.
    assert_eq!(imbs(&d, Cpu(0)), [0, 2, 2, 4]);
    let top = d.sd(d.of(Cpu(40))[3]);
    assert_eq!(top.groups[0].span.to_string(), "32-63");
    assert_eq!(top.groups.len(), 2);
}

#[test]
fn far_nodes_lose_wake_affine() {
    let near = |arch: Arch, d: u32| {
        let masks = Masks {
            smt: vec!["0".into(), "1".into()],
            l2: vec!["0".into(), "1".into()],
            llc: vec!["0".into(), "1".into()],
            packages: vec!["0".into(), "1".into()],
            nodes: vec!["0".into(), "1".into()],
            node_numbers: vec![0, 8],
            node_distance: vec![vec![10, d], vec![d, 10]],
        };
        let t = TopologySpec::Masks(masks).build(arch).expect("valid");
        let d = Domains::build(&t, &v6_12());
        d.sd(*d.of(Cpu(0)).last().unwrap()).flags.has(SdFlags::WAKE_AFFINE)
    };
    assert!(near(Arch::X86, 20) && near(Arch::X86, 30) && !near(Arch::X86, 40));
    // On POWER each other node is too far.
    assert!(!near(Arch::Powerpc, 20) && !near(Arch::Powerpc, 40));
}

/// Two nodes at distance 32: AMD Zen reaches as far, others do not.
#[test]
fn how_far_is_too_far_depends_on_the_vendor() {
    let node_distance = vec![vec![10, 32], vec![32, 10]];
    let shape = Regular { node_distance, ..sockets(2, 2, 1, 2) };
    let affine = |vendor: &str, family: u32| {
        let t = build(Arch::X86, shape.clone());
        let t = match vruntime_machine::node_reclaim_distance(vendor, family) {
            Some(reach) => t.with_node_reclaim_distance(reach),
            None => t,
        };
        let d = Domains::build(&t, &v6_1());
        d.sd(*d.of(Cpu(0)).last().unwrap()).flags.has(SdFlags::WAKE_AFFINE)
    };
    assert!(affine("AuthenticAMD", 0x19) && affine("HygonGenuine", 0x18));
    assert!(!affine("AuthenticAMD", 0x15) && !affine("GenuineIntel", 6));
}

#[test]
fn a_thousand_cpus_take_little_memory() {
    let d = Domains::build(&regular(Arch::X86, 2, 256, 2, 8), &v6_12());
    assert_eq!(d.nr_domains(), 512 + 64 + 2 + 2);
    let groups: usize = (0..d.nr_domains()).map(|i| d.sd(SdId::from_ix(i)).groups.len()).sum();
    let bytes = d.nr_domains() * size_of::<Domain>()
        + groups * size_of::<Group>()
        + d.cpu_list.len() * size_of::<Cpu>();
    assert!(bytes < 1 << 20, "{bytes}");
}
