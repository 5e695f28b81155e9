// SPDX-License-Identifier: MIT OR Apache-2.0
// What the BPF programs send to statecap: one record per event, all numbers as the kernel has them.

enum record_type {
	R_SWITCH = 1, R_WAKING, R_WAKEUP, R_WAKEUP_NEW, R_MIGRATE, R_NEED_RESCHED, R_SELECT_RQ,
	R_PSI_CHANGE, R_MEMSTALL_ENTER, R_MEMSTALL_LEAVE,
};

struct state { // a task, its runqueue and the parent entity
	int pid, prio;
	u64 weight, vruntime, deadline;
	s64 vlag;
	u64 slice, sum_exec, prev_sum_exec;
	u8 on_rq, sched_delayed, depth, policy;
	u32 util_avg, load_avg, util_est, nr_queued, h_nr_queued;
	u64 zero_vruntime;
	s64 sum_w_vruntime;
	u64 sum_weight, cfs_load_weight;
	u32 cfs_util_avg, cfs_load_avg;
	u64 tg, par_weight, par_vruntime, par_deadline;
	s64 par_vlag;
	u64 par_slice, vprot, cgroup;
	u32 flags, nr_cpus_allowed;
	u32 iowait, memstall;
};

struct seen { // by one choice of a CPU; pairs: of the waker's CPU, of prev
	u64 idle, pending; // a bit for each of the first 64 CPUs
	u32 load[2], capacity[2], nr_running[2], nr_delayed[2];
	int idle_cores[2], idle_scan[2];
};

struct record {
	u64 ts;
	u32 cpu, type, a, b;
	int curr_pid;
	u32 rq_cpu, rq_nr_running, rq_nr_switches;
	u64 rq_clock_task, rq_avg_idle;
	u32 wakee_flips, curr_wakee_flips;
	int wake_cpu, recent_used_cpu, curr_last_wakee;
	u32 onflags, curr_flags, curr_nr_cpus_allowed;
	struct state p, n;
	struct seen before, after; // R_SELECT_RQ only, as the four below
	u64 cpus_allowed;
	u32 wakee_h_load, waker_h_load;
	u64 stack[16];
};
