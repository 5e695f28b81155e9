//! The cost table: what every kernel path and every kind of signal between CPUs costs on a
//! machine, each with a range and a source.
//!
//! All values are nanoseconds per event, without contention, on a CPU that runs at full speed (no
//! SMT sibling busy). A path cost holds the instructions and the lines that are warm in the
//! executing CPU's caches; lines that come from elsewhere are charged by [`crate::Lines`], waiting
//! by [`crate::Lock`], so neither is in the table. What of a transfer is waited for, where a CPU
//! works on while lines come, is a share: permille of the transfer. The model uses `mid`.

use crate::cost::{Cost, DistanceCost, scaled};
use crate::topology::Distance;
use crate::{SpecError, nearest_name};
use serde::{Deserialize, Serialize};

/// A line of the cost table, for printing.
#[derive(Clone, Copy, Debug)]
pub struct CostRow<'a> {
    /// Name, with the distance class after a dot where there is one: `ipi_deliver.remote`.
    pub name: &'static str,
    /// What it is.
    pub doc: &'static str,
    /// The value.
    pub cost: &'a Cost,
}

/// The names of a by-distance cost, by class.
macro_rules! by_distance {
    ($name:ident) => {
        [
            concat!(stringify!($name), ".same"),
            concat!(stringify!($name), ".smt"),
            concat!(stringify!($name), ".l2"),
            concat!(stringify!($name), ".llc"),
            concat!(stringify!($name), ".package"),
            concat!(stringify!($name), ".remote"),
        ]
    };
}

macro_rules! cost_table {
    (
        paths { $($(#[doc = $pd:literal])+ $p:ident,)+ }
        signals { $($(#[doc = $sd:literal])+ $s:ident,)+ }
        shares { $($(#[doc = $hd:literal])+ $h:ident,)+ }
        by_distance { $($(#[doc = $dd:literal])+ $d:ident,)+ }
    ) => {
        /// Every cost of a machine with range and source, as read from its file.
        #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct CostSpec {
            $($(#[doc = $pd])+ pub $p: Cost,)+
            $($(#[doc = $sd])+ pub $s: Cost,)+
            $($(#[doc = $hd])+ pub $h: Cost,)+
            $($(#[doc = $dd])+ pub $d: DistanceCost,)+
        }

        /// Every cost of a machine as the model uses it, in ns; shares in permille.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct Costs {
            $($(#[doc = $pd])+ pub $p: u32,)+
            $($(#[doc = $sd])+ pub $s: u32,)+
            $($(#[doc = $hd])+ pub $h: u32,)+
            $($(#[doc = $dd])+ pub $d: [u32; 6],)+
        }

        impl CostSpec {
            /// Names of all entries, in the order of the table; by-distance entries without class.
            pub const NAMES: &'static [&'static str] = &[
                $(stringify!($p),)+ $(stringify!($s),)+ $(stringify!($h),)+ $(stringify!($d),)+
            ];

            /// What each of [`CostSpec::NAMES`] is of.
            pub fn described() -> impl Iterator<Item = (&'static str, &'static str)> {
                let says = [
                    $(concat!($($pd),+),)+ $(concat!($($sd),+),)+
                    $(concat!($($hd),+),)+ $(concat!($($dd),+),)+
                ];
                Self::NAMES.iter().copied().zip(says.map(str::trim_ascii))
            }

            /// All values in the order of the table.
            pub fn iter(&self) -> impl Iterator<Item = CostRow<'_>> {
                let mut rows = vec![
                    $(CostRow {
                        name: stringify!($p),
                        doc: concat!($($pd),+).trim_ascii(),
                        cost: &self.$p,
                    },)+
                    $(CostRow {
                        name: stringify!($s),
                        doc: concat!($($sd),+).trim_ascii(),
                        cost: &self.$s,
                    },)+
                    $(CostRow {
                        name: stringify!($h),
                        doc: concat!($($hd),+).trim_ascii(),
                        cost: &self.$h,
                    },)+
                ];
                $(for d in Distance::ALL {
                    rows.push(CostRow {
                        name: by_distance!($d)[d as usize],
                        doc: concat!($($dd),+).trim_ascii(),
                        cost: self.$d.at(d),
                    });
                })+
                rows.into_iter()
            }
            /// Multiplies every path cost and its range by `permille`/1000.
            pub fn scale_paths(&mut self, permille: u32) {
                $(self.$p.scale(permille);)+
            }
        }

        impl Costs {
            /// Everything free: the base of tests that set the few costs they are about.
            pub const FREE: Costs = Costs {
                $($p: 0,)+ $($s: 0,)+ $($h: 0,)+ $($d: [0; 6],)+
            };

            /// Names of all values: one by one, then by distance.
            const ALL_NAMES: &[&[&str]] = &[
                &[$(stringify!($p),)+ $(stringify!($s),)+ $(stringify!($h),)+],
                $(&by_distance!($d),)+
            ];

            /// The table with each value chosen by `f`, which gets its name.
            fn choose(spec: &CostSpec, mut f: impl FnMut(&str, &Cost) -> u32) -> Costs {
                Costs {
                    $($p: f(stringify!($p), &spec.$p),)+
                    $($s: f(stringify!($s), &spec.$s),)+
                    $($h: f(stringify!($h), &spec.$h),)+
                    $($d: Distance::ALL.map(|d| f(by_distance!($d)[d as usize], spec.$d.at(d))),)+
                }
            }
            /// Multiplies every path cost by `permille`/1000, rounded to nearest. Signals between
            /// CPUs keep their values: they do not scale with a core's speed.
            pub fn scale_paths(&mut self, permille: u32) {
                $(self.$p = scaled(self.$p, permille);)+
            }
            /// The value of the cost of this name (those by distance end with their class), for
            /// knock-outs and overrides.
            pub fn by_name_mut(&mut self, name: &str) -> Option<&mut u32> {
                $(if let Some(class) = by_distance!($d).iter().position(|n| *n == name) {
                    return Some(&mut self.$d[class]);
                })+
                match name {
                    $(stringify!($p) => Some(&mut self.$p),)+
                    $(stringify!($s) => Some(&mut self.$s),)+
                    $(stringify!($h) => Some(&mut self.$h),)+
                    _ => None,
                }
            }
        }
    };
}

cost_table! {
    paths {
        /// Into the kernel by a system call.
        syscall_entry,
        /// The loop that clears the branch history at a system call's entry, of kernels that do
        /// and processors that need it (the `BHI: SW loop` of sysfs).
        bhb_clear,
        /// Back to user mode from a system call, nothing pending.
        syscall_exit,
        /// User part between two system calls of a message loop.
        user_loop,
        /// What glibc does about pthread_cancel around a call that is a cancellation point, in a
        /// program with several threads: two locked instructions (before glibc 2.41).
        cancellation_point,
        /// fget and fput of a file that threads share, its line local.
        file_count,
        /// Taking an uncontended pipe mutex.
        pipe_lock,
        /// A pipe write inside the mutex: book-keeping and a copy of up to 128 bytes.
        pipe_write,
        /// A pipe read inside the mutex: book-keeping and a copy of up to 128 bytes.
        pipe_read,
        /// Releasing a pipe mutex that nobody waits for.
        pipe_unlock,
        /// Copying one KiB more than the first 128 bytes, to or from a pipe or a socket.
        pipe_copy_kib,
        /// A fresh page for a pipe slot, or beside the head of a socket's buffer.
        pipe_new_page,
        /// file_update_time after a write, with sb_start_write and sb_end_write.
        pipe_mtime,
        /// file_accessed after a read.
        pipe_atime,
        /// prepare_to_wait and finish_wait around one sleep.
        pipe_wait,
        /// Lock of a wait queue, walk to the first waiter, its callback; without try_to_wake_up.
        wait_queue_wake,
        /// Slow path of a sleeping mutex from the failed spin to schedule().
        mutex_sleep,
        /// pipe(): inode, ring, two files and descriptors.
        pipe_open,
        /// unix_stream_sendmsg of a small message, without wakeup.
        unix_send,
        /// unix_stream_recvmsg of a small message, data present.
        unix_recv,
        /// What a receive of a small message takes more if two L2s of other data have passed its
        /// sender's caches since.
        unix_cold,
        /// The same if 73 MiB have: between it grows.
        unix_far,
        /// Testing whether a blocked sender may go on.
        unix_wake_check,
        /// socketpair(): two sockets, inodes, files and descriptors.
        unix_open,
        /// futex wait up to schedule(): hash, bucket lock, queueing, and leaving the queue.
        futex_wait,
        /// futex wake of one task without try_to_wake_up.
        futex_wake,
        /// One poll() over two descriptors, without sleeping.
        poll_call,
        /// try_to_wake_up without selection of the CPU and enqueue.
        ttwu,
        /// select_task_rq up to an early hit, lines local.
        select_base,
        /// Examining one CPU in an idle scan, its lines local.
        scan_cpu,
        /// wake_affine and wake_wide, lines local.
        wake_affine,
        /// enqueue_task of the root level without the entity's own level.
        enqueue_base,
        /// dequeue_task of the root level without the entity's own level.
        dequeue_base,
        /// One hierarchy level of an enqueue or dequeue, without `pelt`: tree, counters, weight.
        level,
        /// Load tracking of one entity and its queue brought up to date, without line transfers.
        pelt,
        /// Choosing the next task: the class walk.
        pick_base,
        /// Choosing in one hierarchy level, with put_prev and set_next of that level.
        pick_level,
        /// __schedule without pick, dequeue and switch_to.
        schedule_base,
        /// Whole switch to a thread with the same address space.
        switch_same_mm,
        /// Whole switch to a thread with another address space whose translations are still there.
        switch_other_mm,
        /// What a switch takes more to an address space whose translations are not there.
        switch_new_asid,
        /// scheduler_tick and the rest of the tick handler, without timer_irq and levels.
        tick_base,
        /// One hierarchy level in the tick, without `pelt`.
        tick_level,
        /// Entering and leaving softirq processing with one vector pending.
        softirq,
        /// The sender's part of an interrupt to another CPU.
        ipi_send,
        /// Entry and exit of an IPI handler on the target.
        ipi_entry,
        /// Waker's part of a queued wakeup, without line transfers and IPI.
        wake_list_push,
        /// Target's part of a queued wakeup, each task, without enqueue.
        flush_task,
        /// From pick of the idle task to the idle instruction, tick kept.
        idle_enter,
        /// newidle_balance up to the first domain.
        newidle_base,
        /// Reading the statistics of one CPU in a balance pass, lines local.
        balance_cpu,
        /// A balance pass of one domain besides its CPUs.
        balance_domain,
        /// Taking one task off a queue in a balance pass.
        detach_task,
        /// Putting one moved task on a queue, without enqueue.
        attach_task,
        /// Stopping the tick on the way into idle.
        nohz_enter,
        /// Restarting the tick on the way out of idle.
        nohz_exit,
        /// fork of a small process, parent's side, without wakeup of the child.
        fork,
        /// execve of a small dynamic program.
        exec,
        /// Page faults of a small process that was forked, up to its own code.
        start_process,
        /// Exit of a small process, teardown of its address space included.
        exit,
        /// pthread_create: a stack mapped, clone of a thread, without wakeup of the child.
        clone_thread,
        /// Page faults and registrations of a new thread, up to its function.
        start_thread,
        /// End of a thread.
        exit_thread,
        /// Entry, reprogramming and exit of a timer interrupt.
        timer_irq,
        /// Arming a high resolution timer.
        hrtimer_start,
        /// sched_yield inside the kernel, without the switch.
        sched_yield,
        /// A device or housekeeping interrupt with its handler.
        interrupt,
        /// Taking and dropping a reference to an address space around a kernel thread, line local.
        mm_refcount,
    }
    signals {
        /// Extra for each further sharer whose copy a write invalidates.
        invalidate_per_sharer,
        /// How long a read of a clean line keeps the line's home from the next request.
        read_occupancy,
    }
    shares {
        /// Of a transfer, permille: working on a pipe's slot that another CPU wrote last.
        pipe_slot,
        /// Of a transfer, permille: a new slot in a pipe that another CPU has emptied.
        pipe_emptied,
        /// Of a transfer, permille: a write to lines that another CPU is about to read.
        pipe_near_write,
        /// Of a transfer, permille: a read of bytes that another CPU has just written.
        pipe_near_read,
        /// Of a transfer, permille: a read of bytes that another CPU wrote some time ago.
        pipe_far_read,
        /// Of a transfer, permille: the lines that an idle test reads of a CPU that has changed.
        idle_test,
        /// The same where CPUs are tested one after the other: their loads overlap.
        idle_scan,
        /// Of a transfer, permille: each of the two lines that a look at the load of many CPUs
        /// reads of one.
        balance_scan,
        /// Of a transfer, permille: working on another CPU's run queue, its lock's line besides.
        queue_from_outside,
        /// Of a transfer, permille: working on the own run queue again after another CPU did.
        queue_back,
        /// Of a transfer, permille: enqueueing a wakee that ran on another CPU, its state's line
        /// besides.
        wakee,
        /// Of a transfer, permille: beginning to run when another CPU did the enqueueing.
        wakee_back,
    }
    by_distance {
        /// One-way transfer of a cache line from the CPU that has it.
        line_transfer,
        /// From the sender's write of an interrupt command to the target's handler.
        ipi_deliver,
        /// Refetching one KiB of footprint from where the data was, overlap of misses included.
        refill_kib,
    }
}

impl CostSpec {
    /// Checks every range and source.
    pub fn check(&self) -> Result<(), SpecError> {
        self.iter().try_for_each(|row| row.cost.check(&format!("costs.{}", row.name)))
    }
    /// The cost name nearest to `name`.
    pub fn nearest(name: &str) -> Option<&'static str> {
        nearest_name(name, Self::NAMES.iter().copied())
    }
}

impl Costs {
    /// What copying `n` bytes between a process and the kernel takes more than 128 bytes do, ns.
    #[inline]
    pub fn copy(&self, n: u32) -> u32 {
        ((u64::from(self.pipe_copy_kib) * u64::from(n.saturating_sub(128))) >> 10) as u32
    }
    /// The name nearest to `name` among those that [`Costs::by_name_mut`] knows.
    pub fn nearest(name: &str) -> Option<&'static str> {
        nearest_name(name, Costs::ALL_NAMES.iter().copied().flatten().copied())
    }
    /// The middle values.
    pub fn mid(spec: &CostSpec) -> Costs {
        Costs::choose(spec, |_, c| c.mid)
    }
    /// Values drawn uniformly between low and high; `f` gives 64 uniform bits for a name.
    pub fn draw(spec: &CostSpec, mut f: impl FnMut(&str) -> u64) -> Costs {
        Costs::choose(spec, |name, c| c.draw(f(name)))
    }
}
