// SPDX-License-Identifier: MIT OR Apache-2.0
//
// statecap [-f] [-p] [-m MIB] OUT.csv COMMAND...
//
// Runs COMMAND with the programs of state.bpf.c attached, then writes one CSV row per record and
// OUT.csv.stacks, the kernel call chains the rows point to. -f: also fentry/fexit programs
// (select_rq, resched_curr), -p: also the PSI programs, -m: ring buffer size. A program that this
// kernel cannot take is named on stderr and left out.
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
typedef uint64_t u64;
typedef int64_t s64;
typedef uint32_t u32;
typedef uint8_t u8;
#include "state.h"
#include "state.skel.h"

static const char *type_name[] = { "?", "switch", "waking", "wakeup", "wakeup_new", "migrate",
	"need_resched", "select_rq", "psi_change", "memstall_enter", "memstall_leave" };
static FILE *out;
static u64 nr_records;
static int sees_queues; // other CPUs' queues can be read, and a word holds a bit for each

// Kernel symbols, for the call chains.
static struct symbol { u64 addr; char *name; } *symbols;
static int nr_symbols;

static int by_addr(const void *a, const void *b)
{
	u64 x = ((const struct symbol *)a)->addr, y = ((const struct symbol *)b)->addr;
	return x < y ? -1 : x > y;
}

static void load_symbols(void)
{
	FILE *f = fopen("/proc/kallsyms", "r");
	char line[512], name[256], t;
	unsigned long addr;

	symbols = malloc(sizeof(*symbols) * 600000);
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "%lx %c %255s", &addr, &t, name) == 3 && !strchr(line, '[') &&
		    (t == 't' || t == 'T') && strncmp(name, "__pfx_", 6) && nr_symbols < 600000) {
			symbols[nr_symbols].addr = addr;
			symbols[nr_symbols++].name = strdup(name);
		}
	if (f)
		fclose(f);
	qsort(symbols, nr_symbols, sizeof(*symbols), by_addr);
}

static const char *symbol(u64 addr)
{
	int lo = 0, hi = nr_symbols - 1;

	if (!nr_symbols || addr < symbols[0].addr || addr >= symbols[hi].addr)
		return 0;
	while (lo < hi) {
		int mid = (lo + hi + 1) / 2;
		if (symbols[mid].addr <= addr)
			lo = mid;
		else
			hi = mid - 1;
	}
	return symbols[lo].name;
}

static char *stacks[65536];
static int nr_stacks;

// The row number of a call chain in OUT.csv.stacks; frames of the tracing itself are left out.
static int stack_id(const u64 *frame)
{
	static const char *skip[] = { "bpf_", "__bpf_trace", "__traceiter", "trace_", "__bpf_prog" };
	char text[1024] = "";
	int i, k, depth = 0;

	for (i = 0; i < 16 && frame[i] && depth < 12; i++) {
		const char *name = symbol(frame[i]);
		if (!name)
			continue;
		for (k = 0; k < 5 && strncmp(name, skip[k], strlen(skip[k])); k++)
			;
		if (k < 5 || strlen(text) + strlen(name) + 2 >= sizeof text)
			continue;
		if (depth++)
			strcat(text, "<");
		strcat(text, name);
	}
	for (i = 0; i < nr_stacks; i++)
		if (!strcmp(stacks[i], text))
			return i;
	if (nr_stacks < 65535)
		stacks[nr_stacks++] = strdup(text);
	return nr_stacks - 1;
}

static int group_id(u64 tg)
{
	static u64 groups[1024];
	static int nr_groups;
	int i;

	if (!tg)
		return -1;
	for (i = 0; i < nr_groups; i++)
		if (groups[i] == tg)
			return i;
	if (nr_groups < 1024)
		groups[nr_groups++] = tg;
	return nr_groups - 1;
}

static const char *state_columns = "pid,prio,policy,weight,vruntime,deadline,vlag_or_vprot,slice,"
	"sum_exec,prev_sum_exec,on_rq,sched_delayed,depth,util_avg,load_avg,util_est,tg,"
	"cfs_nr_queued,cfs_h_nr_queued,cfs_zero_vruntime,cfs_sum_w_vruntime,cfs_sum_weight,"
	"cfs_load_weight,cfs_util_avg,cfs_load_avg,par_weight,par_vruntime,par_deadline,par_vlag,par_slice";

static void put_state(const struct state *s)
{
	fprintf(out, ",%d,%d,%d,%lu,%lu,%lu,%ld,%lu,%lu,%lu,%d,%d,%d,%u,%u,%u,%d,%u,%u,%lu,%ld,%lu,%lu,%u,%u,%lu,%lu,%lu,%ld,%lu",
		s->pid, s->prio, s->policy, s->weight, s->vruntime, s->deadline, s->vlag, s->slice,
		s->sum_exec, s->prev_sum_exec, s->on_rq, s->sched_delayed, s->depth, s->util_avg,
		s->load_avg, s->util_est, group_id(s->tg), s->nr_queued, s->h_nr_queued, s->zero_vruntime,
		s->sum_w_vruntime, s->sum_weight, s->cfs_load_weight, s->cfs_util_avg, s->cfs_load_avg,
		s->par_weight, s->par_vruntime, s->par_deadline, s->par_vlag, s->par_slice);
}

static void put_header(void)
{
	static const char *seen[] = { "load", "capacity", "nr_running", "nr_delayed", "idle_cores", "idle_scan" };
	char names[2048], *t, *rest;
	int half, end, i;

	fprintf(out, "ts_ns,cpu,event,curr_pid,a,b,rq_cpu,rq_nr_running,rq_nr_switches,rq_clock_task,"
		"rq_avg_idle,wakee_flips,curr_wakee_flips,wake_cpu,recent_used_cpu,curr_last_wakee,onflags");
	for (half = 0; half < 2; half++) {
		if (half)
			fprintf(out, ",stack");
		snprintf(names, sizeof names, "%s", state_columns);
		for (t = names; t; t = rest) {
			rest = strchr(t, ',');
			if (rest)
				*rest++ = 0;
			fprintf(out, ",%s%s", half ? "n_" : "p_", t);
		}
	}
	fprintf(out, ",curr_flags,curr_nr_cpus_allowed,p_flags,p_nr_cpus_allowed,p_iowait,p_memstall,"
		"p_cgroup,p_vprot,n_cgroup,n_vprot,p_cpus_allowed,wakee_h_load,waker_h_load");
	for (half = 0; half < 2; half++) {
		const char *when = half ? "after" : "before";
		fprintf(out, ",idle_%s,ttwu_pending_%s", when, when);
		for (end = 0; end < 2; end++)
			for (i = 0; i < 6; i++)
				fprintf(out, ",%s_%s_%s", end ? "prev" : "this", seen[i], when);
	}
	fputc('\n', out);
}

static void put_seen(const struct seen *s)
{
	int i;

	fprintf(out, ",%lu,%lu", s->idle, s->pending);
	for (i = 0; i < 2; i++)
		fprintf(out, ",%u,%u,%u,%u,%d,%d", s->load[i], s->capacity[i], s->nr_running[i], s->nr_delayed[i],
			s->idle_cores[i], s->idle_scan[i]);
}

static int put_record(void *ctx, void *data, size_t size)
{
	const struct record *r = data;
	int i;

	(void)ctx, (void)size;
	nr_records++;
	fprintf(out, "%lu,%u,%s,%d,%u,%u,%u,%u,%u,%lu,%lu", r->ts, r->cpu, type_name[r->type], r->curr_pid,
		r->a, r->b, r->rq_cpu, r->rq_nr_running, r->rq_nr_switches, r->rq_clock_task, r->rq_avg_idle);
	if ((r->type >= R_WAKING && r->type <= R_MIGRATE) || r->type == R_SELECT_RQ)
		fprintf(out, ",%u,%u,%d,%d,%d,%u", r->wakee_flips, r->curr_wakee_flips, r->wake_cpu,
			r->recent_used_cpu, r->curr_last_wakee, r->onflags);
	else
		fputs(",,,,,,", out);
	put_state(&r->p);
	fprintf(out, ",%d", stack_id(r->stack));
	if (r->type == R_SWITCH)
		put_state(&r->n);
	else
		for (i = 0; i < 30; i++)
			fputc(',', out);
	fprintf(out, ",%u,%u,%u,%u,%u,%u,%lu,%lu", r->curr_flags, r->curr_nr_cpus_allowed, r->p.flags,
		r->p.nr_cpus_allowed, r->p.iowait, r->p.memstall, r->p.cgroup, r->p.vprot);
	if (r->type == R_SWITCH)
		fprintf(out, ",%lu,%lu", r->n.cgroup, r->n.vprot);
	else if (r->type == R_SELECT_RQ && sees_queues) {
		fprintf(out, ",,,%lu,%u,%u", r->cpus_allowed, r->wakee_h_load, r->waker_h_load);
		put_seen(&r->before);
		put_seen(&r->after);
	}
	fputc('\n', out);
	return 0;
}

// Does this kernel have what the program attaches to?
static int has_target(const struct btf *btf, const char *section)
{
	const char *target = strchr(section, '/') + 1;
	char name[128];

	if (!strncmp(section, "tp_btf/", 7)) {
		snprintf(name, sizeof name, "btf_trace_%s", target);
		return btf__find_by_name_kind(btf, name, BTF_KIND_TYPEDEF) > 0;
	}
	return btf__find_by_name_kind(btf, target, BTF_KIND_FUNC) > 0;
}

static int quiet(enum libbpf_print_level level, const char *fmt, va_list args)
{
	return level == LIBBPF_WARN && getenv("STATECAP_DEBUG") ? vfprintf(stderr, fmt, args) : 0;
}

int main(int argc, char **argv)
{
	int opt, functions = 0, psi = 0, mib = 128, status = 0, i;
	struct bpf_program *prog;
	struct bpf_link *links[32];
	int nr_links = 0;
	char path[512];

	while ((opt = getopt(argc, argv, "+fpm:")) != -1)
		switch (opt) {
		case 'f': functions = 1; break;
		case 'p': functions = psi = 1; break;
		case 'm': mib = atoi(optarg); break;
		default: return 2;
		}
	if (argc - optind < 2) {
		fprintf(stderr, "usage: statecap [-f] [-p] [-m MIB] OUT.csv COMMAND...\n");
		return 2;
	}
	libbpf_set_print(quiet);
	struct btf *btf = btf__load_vmlinux_btf();
	struct state_bpf *k = state_bpf__open();
	if (!btf || !k) {
		fprintf(stderr, "statecap: no BTF in this kernel, or cannot open the programs\n");
		return 1;
	}
	sees_queues = sysconf(_SC_NPROCESSORS_CONF) <= 64 &&
		btf__find_by_name_kind(btf, "runqueues", BTF_KIND_VAR) > 0 &&
		btf__find_by_name_kind(btf, "sd_llc_shared", BTF_KIND_VAR) > 0;
	if (functions && !sees_queues)
		fprintf(stderr, "statecap: without the state of other CPUs\n");
	// Reschedule requests: the tracepoint where there is one and it is safe, else a function.
	struct utsname uts;
	uname(&uts);
	const char *resched = atoi(uts.release) >= 7 ? "fentry/__resched_curr" :
		has_target(btf, "tp_btf/sched_set_need_resched_tp") ? "tp_btf/sched_set_need_resched_tp" :
		"fentry/resched_curr";
	bpf_object__for_each_program(prog, k->obj) {
		const char *sec = bpf_program__section_name(prog);
		int is_function = !strncmp(sec, "fe", 2), is_psi = strstr(sec, "/psi_") != 0;
		int asked = (!is_function || functions) && (!is_psi || psi) && (!strstr(sec, "resched") || !strcmp(sec, resched));
		int want = asked && has_target(btf, sec);
		bpf_program__set_autoload(prog, want);
		if (asked && !want)
			fprintf(stderr, "statecap: without %s\n", sec);
	}
	bpf_map__set_max_entries(k->maps.rb, (u32)mib << 20);
	if (state_bpf__load(k)) {
		fprintf(stderr, "statecap: the kernel refuses the programs (STATECAP_DEBUG=1 says why)\n");
		return 1;
	}
	bpf_object__for_each_program(prog, k->obj) {
		if (!bpf_program__autoload(prog))
			continue;
		struct bpf_link *link = bpf_program__attach(prog);
		if (link)
			links[nr_links++] = link;
		else
			fprintf(stderr, "statecap: cannot attach %s\n", bpf_program__section_name(prog));
	}
	signal(SIGINT, SIG_IGN);
	pid_t child = fork();
	if (!child) {
		execvp(argv[optind + 1], argv + optind + 1);
		_exit(127);
	}
	waitpid(child, &status, 0);
	for (i = 0; i < nr_links; i++)
		bpf_link__destroy(links[i]);

	out = fopen(argv[optind], "w");
	if (!out) {
		perror(argv[optind]);
		return 1;
	}
	put_header();
	load_symbols();
	struct ring_buffer *ring = ring_buffer__new(bpf_map__fd(k->maps.rb), put_record, 0, 0);
	if (ring)
		ring_buffer__consume(ring);
	fclose(out);
	snprintf(path, sizeof path, "%s.stacks", argv[optind]);
	out = fopen(path, "w");
	for (i = 0; out && i < nr_stacks; i++)
		fprintf(out, "%d %s\n", i, stacks[i]);
	if (out)
		fclose(out);
	fprintf(stderr, "state records %lu dropped %lu\n", nr_records, (u64)k->bss->dropped);
	return WEXITSTATUS(status);
}
