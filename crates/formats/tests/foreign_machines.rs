//! One machine as sysfs, hwloc and lscpu describe it is one machine, and each mistake is named.

use std::path::{Path, PathBuf};
use vruntime_formats::machine_file::load_machine;
use vruntime_machine::{Arch, MachineSpec, TopologySpec};

/// 2 nodes, 4 cores each, 2 threads per core; the same guest in each file.
const SAME: [&str; 5] = [
    "machines/sysfs.tar.gz",
    "machines/hwloc-2.xml",
    "machines/lscpu.json",
    "machines/lscpu-e.json",
    "guest-6.12-16cpu-preempt-full-hackbench-pipe-g1/topology.txt.xz",
];

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(name)
}

fn load(path: &Path) -> MachineSpec {
    load_machine(path).unwrap_or_else(|e| panic!("{e}"))
}

/// What `load_machine` says about `text` in a file called `name`.
fn complaint(name: &str, text: &[u8]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    let text = load_machine(&path).unwrap_err().to_string();
    text.replace(&format!("{}/", dir.path().display()), "")
}

#[test]
fn five_descriptions_of_one_machine_agree() {
    let [first, others @ ..] = SAME.map(|name| load(&data(name)));
    let TopologySpec::Masks(expected) = &first.topology else { panic!("not written out") };
    assert_eq!(expected.smt, ["0-1", "2-3", "4-5", "6-7", "8-9", "10-11", "12-13", "14-15"]);
    assert_eq!((&expected.llc, &expected.packages), (&expected.nodes, &expected.nodes));
    assert_eq!(expected.nodes, ["0-7", "8-15"]);
    assert_eq!(expected.node_distance, [[10, 21], [21, 10]]);
    assert_eq!((first.caches.l2_kib, first.caches.llc_mib), (4096, 16));
    for (name, other) in SAME[1..].iter().zip(others) {
        let TopologySpec::Masks(mut found) = other.topology else { panic!("not written out") };
        if name.contains("lscpu") {
            // lscpu shows no distances; the kernel's default stands in.
            assert_eq!(found.node_distance, [[10, 20], [20, 10]], "{name}");
            found.node_distance.clone_from(&expected.node_distance);
        }
        assert_eq!(&found, expected, "{name}");
        assert_eq!((other.arch, &other.costs), (Arch::X86, &first.costs), "{name}");
        assert!(name.contains("lscpu-e") || other.caches == first.caches, "{name}");
    }
}

#[test]
fn hwloc_3_is_read_and_1_is_not() {
    let text = std::fs::read_to_string(data("machines/hwloc-2.xml")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("three.xml");
    // What version 3 changes in the parts that are read: the version, and where the facts about
    // the whole machine stand.
    let info = "<info name=\"Architecture\" value=\"ppc64le\"/></topology>";
    let three = text.replace("version=\"2.0\"", "version=\"3.0\"").replace("</topology>", info);
    std::fs::write(&path, &three).unwrap();
    assert_eq!(load(&path).arch, Arch::Powerpc);
    std::fs::write(&path, three.replace("ppc64le", "x86_64")).unwrap();
    assert_eq!(load(&path).topology, load(&data("machines/hwloc-2.xml")).topology);
    let one = text.replace(" version=\"2.0\"", "");
    assert_eq!(
        complaint("one.xml", one.as_bytes()),
        "one.xml:3: found <topology> without a version, expected <topology version=\"2.0\"> or 3, \
         as `lstopo --of xml` of hwloc 2 or 3 writes"
    );
}

#[test]
fn a_copied_tree_is_a_machine() {
    let dir = tempfile::tempdir().unwrap();
    let packed = std::fs::File::open(data("machines/sysfs.tar.gz")).unwrap();
    tar::Archive::new(flate2::read::GzDecoder::new(packed)).unpack(dir.path()).unwrap();
    let expected = load(&data("machines/sysfs.tar.gz")).topology;
    for root in ["", "sys", "sys/devices/system"] {
        assert_eq!(load(&dir.path().join(root)).topology, expected, "{root}");
    }
}

/// A size that cannot be read is the usual one of its level, and that is told.
#[test]
fn a_cache_without_a_size_is_guessed() {
    let cache = |cpu: u32, index: u32, level: u32, size: &str| {
        let at = format!("cpu{cpu}/cache/index{index}");
        format!(
            "{at}/level:{level}\n{at}/type:Unified\n{at}/size:{size}\n{at}/shared_cpu_list:0-1\n"
        )
    };
    let of_cpu = |c: u32| {
        let at = format!("cpu{c}/topology");
        format!("{at}/core_cpus_list:{c}\n{at}/package_cpus_list:0-1\n")
            + &cache(c, 0, 2, "512K")
            + &cache(c, 1, 3, "<unreadable>")
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dump.txt");
    std::fs::write(&path, of_cpu(0) + &of_cpu(1)).unwrap();
    let spec = load(&path);
    assert_eq!((spec.caches.l2_kib, spec.caches.llc_mib), (512, 32));
    let told: Vec<_> = spec.sources.iter().filter(|s| s.what == "size of the L3").collect();
    assert!(told.len() == 1 && told[0].place.contains("`<unreadable>`"), "{told:?}");
}

#[test]
fn mistakes_are_named_with_their_place() {
    let xml = std::fs::read_to_string(data("machines/hwloc-2.xml")).unwrap();
    let says = |from: &str, to: &str| complaint("x.xml", xml.replacen(from, to, 1).as_bytes());
    assert_eq!(
        says("type=\"PU\" os_index=\"0\"", "type=\"PU\" os_index=\"x\""),
        "x.xml:18: found os_index=\"x\", expected a number in os_index"
    );
    assert_eq!(
        says("cpuset=\"0x000000ff\"", "cpuset=\"0xgg\""),
        "x.xml:8: found cpuset=\"0xgg\", expected words such as 0x0000000f, CPUs below 1024"
    );
    assert!(says("10 21 21 10 ", "10 21 ").starts_with("x.xml:137: found 2 values"));
    assert!(says("</topology>", "").starts_with("x.xml:"));
    assert!(says("<topology", "<!DOCTYPE a [<!ENTITY b \"c\">]><topology").starts_with("x.xml:"));

    // The parser calls itself for each level; what would hide one is seen through.
    let deep = "<a b='>'>".repeat(200_000);
    for start in ["<topology>\n", "<topology><!-- </a> --><?x </a>?><c/>\n"] {
        assert!(
            complaint("x.xml", format!("{start}{deep}").as_bytes())
                .starts_with("x.xml:2: found more than 100 elements within one another")
        );
    }

    assert!(complaint("x.json", b"{\n \"lscpu\": [,]}").starts_with("x.json:2: found "));
    assert_eq!(
        complaint("x.json", b"{\"cpu\": []}"),
        "x.json: found keys `cpu`, expected the output of `lscpu -J` or `lscpu -J -e`"
    );
    let table = std::fs::read_to_string(data("machines/lscpu-e.json")).unwrap();
    assert!(
        complaint("x.json", table.replacen("\"cpu\": 3", "\"cpu\": 2", 1).as_bytes())
            .contains("each CPU once and no holes")
    );
    assert!(
        complaint("x.json", table.replacen("\"core\"", "\"cores\"", 1).as_bytes())
            .starts_with("x.json: found a CPU without `core` (nearest is `cores`)")
    );
    let arm = std::fs::read_to_string(data("machines/lscpu.json")).unwrap();
    assert!(
        complaint("x.json", arm.replace("x86_64", "aarch64").as_bytes())
            .starts_with("x.json: found architecture `aarch64`, expected x86_64")
    );
    assert!(complaint("x.tar.gz", b"\x1f\x8bno gzip").starts_with("x.tar.gz: "));
    assert!(complaint("topology.txt", b"cpu0/topology/core_id:0\nnothing\n").contains(":2: found"));
}

/// The vendor and the family tell how far away a node is too far.
#[test]
fn vendors_reach_differently_far() {
    let dir = tempfile::tempdir().unwrap();
    let zen = |name: &str, change: fn(String) -> String| {
        let before = data(name);
        let after = dir.path().join(before.file_name().unwrap());
        std::fs::write(&after, change(std::fs::read_to_string(&before).unwrap())).unwrap();
        [before, after].map(|path| load(&path).node_reclaim_distance)
    };
    let lscpu = zen("machines/lscpu.json", |text| {
        let text = text.replace("GenuineIntel", "AuthenticAMD");
        text.replace("\"CPU family:\",\n   \"data\": \"6\"", "\"CPU family:\", \"data\": \"25\"")
    });
    let hwloc = zen("machines/hwloc-2.xml", |text| {
        let infos = "<info name=\"CPUVendor\" value=\"AuthenticAMD\"/>\
                     <info name=\"CPUFamilyNumber\" value=\"25\"/><info ";
        text.replacen("<info ", infos, 1)
    });
    assert_eq!([lscpu, hwloc], [[None, Some(32)]; 2]);
}

#[test]
fn a_damaged_file_never_panics() {
    let dir = tempfile::tempdir().unwrap();
    for name in SAME {
        let whole = std::fs::read(data(name)).unwrap();
        for i in 0..600 {
            let mut bytes = whole.clone();
            let at = bytes.len() * i / 600;
            match i % 3 {
                0 => bytes.truncate(at),
                1 => bytes[at] ^= 0x15,
                _ => drop(bytes.drain(at..(at + 40).min(whole.len()))),
            }
            let path = dir.path().join("damaged");
            std::fs::write(&path, bytes).unwrap();
            let _ = load_machine(&path);
        }
    }
}
