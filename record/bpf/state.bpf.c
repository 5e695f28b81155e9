// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The kernel's own scheduler state at each decision, read by BPF programs and sent to a ring
// buffer. One object file for every kernel: only the fields used are declared here, libbpf
// relocates them against the running kernel's BTF (CO-RE), and fields that were renamed are
// declared twice, once per name ("flavours", the part after ___ is ignored by libbpf).
//
// Renames covered: cfs_rq nr_running -> nr_queued, h_nr_running -> h_nr_queued, min_vruntime ->
// zero_vruntime, avg_vruntime -> sum_w_vruntime, avg_load -> sum_weight; util_est struct -> int.
// on_cpu and on_rq became u8 in 7.x: libbpf resizes unsigned fields only, so they are unsigned here.

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u16 __sum16;
typedef __u64 u64;
typedef __s64 s64;
typedef __u32 u32;
typedef __u8 u8;
typedef _Bool bool;
enum { BPF_MAP_TYPE_PERCPU_ARRAY = 6, BPF_MAP_TYPE_RINGBUF = 27, BPF_RB_NO_WAKEUP = 1 };

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "state.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct load_weight { unsigned long weight; };
struct util_est { unsigned int enqueued; };
struct sched_avg { unsigned long load_avg, util_avg; unsigned int util_est; };
struct sched_avg___61 { struct util_est util_est; };
struct task_group;
struct cfs_rq;
struct sched_entity {
	struct load_weight load;
	u64 vruntime, deadline, sum_exec_runtime, prev_sum_exec_runtime, slice, vprot;
	s64 vlag;
	u8 on_rq, sched_delayed;
	int depth;
	struct sched_entity *parent;
	struct cfs_rq *cfs_rq;
	struct sched_avg avg;
};
struct rq;
struct cfs_rq {
	struct load_weight load;
	unsigned int nr_queued, h_nr_queued, h_nr_runnable;
	u64 zero_vruntime, sum_weight;
	s64 sum_w_vruntime;
	struct sched_avg avg;
	unsigned long h_load;
	struct rq *rq;
	struct task_group *tg;
};
struct cfs_rq___old {
	unsigned int nr_running, h_nr_running, h_nr_delayed;
	u64 min_vruntime, avg_load;
	s64 avg_vruntime;
};
struct kernfs_node { u64 id; };
struct cgroup { struct kernfs_node *kn; };
struct css_set { struct cgroup *dfl_cgrp; };
struct thread_info { unsigned long flags; u32 cpu; };
struct task_struct {
	struct thread_info thread_info;
	unsigned int __state, flags, policy, wakee_flips, on_cpu, on_rq;
	int prio, pid, recent_used_cpu, wake_cpu, nr_cpus_allowed;
	unsigned int in_iowait : 1;
	unsigned int in_memstall : 1;
	struct sched_entity se;
	struct task_struct *last_wakee;
	struct css_set *cgroups;
	struct cpumask *cpus_ptr;
};
struct cpumask { unsigned long bits[1]; };
struct rq {
	unsigned int nr_running, ttwu_pending;
	u64 nr_switches, clock_task, avg_idle;
	unsigned long cpu_capacity;
	int cpu;
	struct task_struct *curr, *idle;
	struct cfs_rq cfs;
};
struct sched_domain_shared { int has_idle_cores, nr_idle_scan; };
#pragma clang attribute pop

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 128 * 1024 * 1024);
} rb SEC(".maps");
u64 dropped;

// The kernel's per-CPU variables.
extern const struct rq runqueues __ksym __weak;
extern struct sched_domain_shared *const sd_llc_shared __ksym __weak;

// What the search that is under way on a CPU saw as it began.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct seen);
} begun SEC(".maps");

static __always_inline void fill_cfs_rq(struct state *s, struct cfs_rq *q)
{
	struct cfs_rq___old *o = (void *)q;

	if (bpf_core_field_exists(q->nr_queued))
		s->nr_queued = q->nr_queued;
	else
		s->nr_queued = o->nr_running;
	if (bpf_core_field_exists(q->h_nr_queued))
		s->h_nr_queued = q->h_nr_queued;
	else
		s->h_nr_queued = o->h_nr_running;
	if (bpf_core_field_exists(q->zero_vruntime))
		s->zero_vruntime = q->zero_vruntime;
	else
		s->zero_vruntime = o->min_vruntime;
	if (bpf_core_field_exists(q->sum_w_vruntime))
		s->sum_w_vruntime = q->sum_w_vruntime;
	else if (bpf_core_field_exists(o->avg_vruntime))
		s->sum_w_vruntime = o->avg_vruntime;
	if (bpf_core_field_exists(q->sum_weight))
		s->sum_weight = q->sum_weight;
	else if (bpf_core_field_exists(o->avg_load))
		s->sum_weight = o->avg_load;
	s->cfs_load_weight = q->load.weight;
	s->cfs_util_avg = q->avg.util_avg;
	s->cfs_load_avg = q->avg.load_avg;
	s->tg = (u64)q->tg;
}

static __always_inline void fill(struct state *s, struct task_struct *p)
{
	struct sched_entity *e = &p->se, *g = e->parent;
	struct sched_avg___61 *a61 = (void *)&e->avg;
	struct util_est ue;

	s->pid = p->pid;
	s->prio = p->prio;
	s->policy = p->policy;
	s->weight = e->load.weight;
	s->vruntime = e->vruntime;
	if (bpf_core_field_exists(e->deadline))
		s->deadline = e->deadline;
	if (bpf_core_field_exists(e->vlag))
		s->vlag = e->vlag;
	if (bpf_core_field_exists(e->vprot))
		s->vprot = e->vprot;
	if (bpf_core_field_exists(e->slice))
		s->slice = e->slice;
	if (bpf_core_field_exists(e->sched_delayed))
		s->sched_delayed = e->sched_delayed;
	s->sum_exec = e->sum_exec_runtime;
	s->prev_sum_exec = e->prev_sum_exec_runtime;
	s->on_rq = e->on_rq;
	s->depth = e->depth;
	s->util_avg = e->avg.util_avg;
	s->load_avg = e->avg.load_avg;
	if (bpf_core_field_exists(ue.enqueued))
		s->util_est = a61->util_est.enqueued;
	else
		s->util_est = e->avg.util_est;
	if (e->cfs_rq)
		fill_cfs_rq(s, e->cfs_rq);
	if (g) {
		s->par_weight = g->load.weight;
		s->par_vruntime = g->vruntime;
		if (bpf_core_field_exists(e->deadline))
			s->par_deadline = g->deadline;
		if (bpf_core_field_exists(e->vlag))
			s->par_vlag = g->vlag;
		if (bpf_core_field_exists(e->slice))
			s->par_slice = g->slice;
	}
	s->flags = p->flags;
	s->nr_cpus_allowed = p->nr_cpus_allowed;
	s->iowait = BPF_CORE_READ_BITFIELD_PROBED(p, in_iowait);
	if (bpf_core_field_exists(p->in_memstall))
		s->memstall = BPF_CORE_READ_BITFIELD_PROBED(p, in_memstall);
	s->cgroup = BPF_CORE_READ(p, cgroups, dfl_cgrp, kn, id);
}

static __always_inline struct task_struct *current(void)
{
	return (void *)bpf_get_current_task_btf();
}

static __always_inline struct record *make(u32 type)
{
	struct record *r = bpf_ringbuf_reserve(&rb, sizeof(*r), 0);
	struct task_struct *c;

	if (!r) {
		__sync_fetch_and_add(&dropped, 1);
		return 0;
	}
	__builtin_memset(r, 0, sizeof(*r));
	c = current();
	r->ts = bpf_ktime_get_ns();
	r->cpu = bpf_get_smp_processor_id();
	r->type = type;
	r->curr_pid = (int)bpf_get_current_pid_tgid();
	r->curr_flags = c->flags;
	r->curr_nr_cpus_allowed = c->nr_cpus_allowed;
	return r;
}

static __always_inline void fill_rq(struct record *r, struct rq *k)
{
	r->rq_cpu = k->cpu;
	r->rq_nr_running = k->nr_running;
	r->rq_nr_switches = (u32)k->nr_switches;
	r->rq_clock_task = k->clock_task;
	r->rq_avg_idle = k->avg_idle;
}

static __always_inline void fill_rq_of(struct record *r, struct task_struct *p)
{
	struct cfs_rq *q = p->se.cfs_rq;

	if (q && q->rq)
		fill_rq(r, q->rq);
}

static __always_inline void fill_wake(struct record *r, struct task_struct *p)
{
	struct task_struct *c = current();

	r->wakee_flips = p->wakee_flips;
	r->curr_wakee_flips = c->wakee_flips;
	r->wake_cpu = p->wake_cpu;
	r->recent_used_cpu = p->recent_used_cpu;
	r->curr_last_wakee = c->last_wakee ? c->last_wakee->pid : 0;
	r->onflags = p->on_cpu | (p->on_rq << 1);
}

static __always_inline int submit(void *ctx, struct record *r)
{
	bpf_get_stack(ctx, r->stack, sizeof(r->stack), 0);
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

// An event about p of which a and b say the rest.
static __always_inline int about(void *ctx, u32 type, struct task_struct *p, u32 a, u32 b)
{
	struct record *r = make(type);

	if (!r)
		return 0;
	fill_rq_of(r, p);
	fill(&r->p, p);
	r->a = a;
	r->b = b;
	return submit(ctx, r);
}

static __always_inline int wake(void *ctx, u32 type, struct task_struct *p)
{
	struct record *r = make(type);

	if (!r)
		return 0;
	fill_rq_of(r, p);
	fill(&r->p, p);
	fill_wake(r, p);
	r->a = p->thread_info.cpu;
	r->b = p->__state;
	return submit(ctx, r);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	struct record *r = make(R_SWITCH);

	if (!r)
		return 0;
	r->a = preempt;
	r->b = prev_state;
	fill_rq_of(r, next);
	fill(&r->p, prev);
	fill(&r->n, next);
	return submit(ctx, r);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *p) { return wake(ctx, R_WAKING, p); }

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *p) { return wake(ctx, R_WAKEUP, p); }

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, struct task_struct *p) { return wake(ctx, R_WAKEUP_NEW, p); }

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(on_migrate, struct task_struct *p, int dest)
{
	struct record *r = make(R_MIGRATE);

	if (!r)
		return 0;
	fill_rq_of(r, p);
	fill(&r->p, p);
	r->a = p->thread_info.cpu;
	r->b = dest;
	r->wake_cpu = p->wake_cpu;
	r->onflags = p->on_cpu | (p->on_rq << 1);
	return submit(ctx, r);
}

// From 6.13 on; b is the bit set: TIF_NEED_RESCHED or TIF_NEED_RESCHED_LAZY, 3 and 4 up to 6.17,
// 4 and 5 from 6.18 on.
SEC("tp_btf/sched_set_need_resched_tp")
int BPF_PROG(on_need_resched, struct task_struct *p, int cpu, int tif)
{
	return about(ctx, R_NEED_RESCHED, p, cpu, tif);
}

// Before that: the function itself, called even when the flag is already set; b is thread flags.
SEC("fentry/resched_curr")
int BPF_PROG(on_resched_curr, struct rq *rq)
{
	struct record *r = make(R_NEED_RESCHED);
	struct task_struct *p;

	if (!r)
		return 0;
	p = rq->curr;
	fill_rq(r, rq);
	fill(&r->p, p);
	r->a = rq->cpu;
	r->b = p->thread_info.flags;
	return submit(ctx, r);
}

// From 7.0 on the tracepoint also fires inside rcu_read_unlock(), which a BPF program on it calls:
// the kernel recurses until its stack ends. There the function that sets the flag is taken, with
// its own early exit repeated, so that rows mean what the tracepoint's rows mean.
SEC("fentry/__resched_curr")
int BPF_PROG(on_resched_curr_tif, struct rq *rq, int tif)
{
	struct task_struct *p = rq->curr;
	struct record *r;

	if ((p->flags & 2 /* PF_IDLE */) && tif == 5)
		tif = 4;
	if (p->thread_info.flags & ((1 << tif) | (1 << 4)))
		return 0;
	r = make(R_NEED_RESCHED);
	if (!r)
		return 0;
	fill_rq(r, rq);
	fill(&r->p, p);
	r->a = rq->cpu;
	r->b = tif;
	return submit(ctx, r);
}

// Tasks in delayed dequeue: counted by themselves in 6.12 and 6.13, the rest of two counts later.
static __always_inline u32 nr_delayed(const struct cfs_rq *q)
{
	const struct cfs_rq___old *o = (void *)q;

	if (bpf_core_field_exists(o->h_nr_delayed))
		return o->h_nr_delayed;
	if (bpf_core_field_exists(q->h_nr_runnable))
		return q->h_nr_queued - q->h_nr_runnable;
	return 0;
}

// What a search can see of the other CPUs, now: all that are idle (as idle_cpu() has it), and of
// the waker's CPU and prev what placement compares.
static __always_inline void look(struct seen *s, int prev_cpu)
{
	int i;

	s->idle = s->pending = 0;
	if (!&runqueues || !&sd_llc_shared) // not in this kernel's BTF
		return;
	for (i = 0; i < 64; i++) {
		const struct rq *q = bpf_per_cpu_ptr(&runqueues, i);

		if (!q)
			break;
		if (q->ttwu_pending)
			s->pending |= 1UL << i;
		else if (q->curr == q->idle && !q->nr_running)
			s->idle |= 1UL << i;
	}
	for (i = 0; i < 2; i++) {
		int cpu = i ? prev_cpu : (int)bpf_get_smp_processor_id();
		const struct rq *q = bpf_per_cpu_ptr(&runqueues, cpu);
		struct sched_domain_shared *const *llc = bpf_per_cpu_ptr(&sd_llc_shared, cpu);

		if (q) {
			s->load[i] = q->cfs.avg.load_avg;
			s->capacity[i] = q->cpu_capacity;
			s->nr_running[i] = q->nr_running;
			s->nr_delayed[i] = nr_delayed(&q->cfs);
		}
		s->idle_cores[i] = s->idle_scan[i] = -1;
		if (llc && *llc) {
			s->idle_cores[i] = BPF_CORE_READ(*llc, has_idle_cores);
			if (bpf_core_field_exists((*llc)->nr_idle_scan))
				s->idle_scan[i] = BPF_CORE_READ(*llc, nr_idle_scan);
		}
	}
}

static __always_inline u32 h_load(struct task_struct *p)
{
	struct cfs_rq *q = p->se.cfs_rq;

	return q ? p->se.avg.load_avg * q->h_load / (q->avg.load_avg + 1) : 0;
}

SEC("fentry/select_task_rq_fair")
int BPF_PROG(on_search, struct task_struct *p, int prev_cpu)
{
	u32 zero = 0;
	struct seen *s = bpf_map_lookup_elem(&begun, &zero);

	if (s)
		look(s, prev_cpu);
	return 0;
}

SEC("fexit/select_task_rq_fair")
int BPF_PROG(on_select_rq, struct task_struct *p, int prev_cpu, int wake_flags, int ret)
{
	struct record *r = make(R_SELECT_RQ);
	u32 zero = 0;
	struct seen *s = bpf_map_lookup_elem(&begun, &zero);

	if (!r)
		return 0;
	look(&r->after, prev_cpu);
	if (s)
		r->before = *s;
	r->wakee_h_load = h_load(p);
	r->waker_h_load = h_load(current());
	r->cpus_allowed = p->cpus_ptr->bits[0];
	fill_rq_of(r, p);
	fill(&r->p, p);
	fill_wake(r, p);
	r->wake_cpu = prev_cpu;
	r->a = ret;
	r->b = wake_flags;
	return submit(ctx, r);
}

// PSI (statecap -p): the task's PSI state bits cleared (a) and set (b), and memory stalls.
SEC("fentry/psi_task_change")
int BPF_PROG(on_psi_change, struct task_struct *p, int clear, int set)
{
	return about(ctx, R_PSI_CHANGE, p, clear, set);
}

SEC("fentry/psi_memstall_enter")
int BPF_PROG(on_memstall_enter) { return about(ctx, R_MEMSTALL_ENTER, current(), 0, 0); }

SEC("fentry/psi_memstall_leave")
int BPF_PROG(on_memstall_leave) { return about(ctx, R_MEMSTALL_LEAVE, current(), 0, 0); }
