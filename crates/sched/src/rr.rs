//! (stub)
use crate::{cx::Cx,scheduler::*,task::*}; use std::collections::VecDeque; use vruntime_base::*; use vruntime_machine::Topology;
static PREV: Cause=Cause::new(CauseKind::Placement,"prev"); static IDLE: Cause=Cause::new(CauseKind::Placement,"idle cpu");static SLICE: Cause=Cause::new(CauseKind::Switch,"slice used up");static WK: Cause=Cause::new(CauseKind::Switch,"idle cpu got work");
pub struct Rr{q:Vec<VecDeque<TaskId>>,slice:Vec<u32>,llc:Vec<CpuMask>,moved:Vec<Moved>}
impl Rr{pub fn new(t:&Topology)->Self{let n=t.nr_cpus();Rr{q:vec![VecDeque::new();n],slice:vec![0;n],llc:(0..n).map(|c|*t.llc(Cpu::from_ix(c))).collect(),moved:vec![]}}}
impl Scheduler for Rr{
 fn task_group_new(&mut self,_:&mut Cx,_:TgId)->TgId{TgId(1)}
 fn task_new(&mut self,_:&mut Cx,_:TaskId,_:Option<TaskId>){}
 fn task_fork_place(&mut self,_:&mut Cx,_:TaskId){}
 fn task_dead(&mut self,_:&mut Cx,_:TaskId){}
 fn select_task_rq(&mut self,cx:&mut Cx,p:TaskId,prev:Cpu,_:WakeFlags)->Placement{
  cx.charge(Func::SelectTaskRq,100);
  let a=*cx.sh.allowed(p);
  if a.has(prev)&&cx.sh.idle_cpu(prev){return Placement{cpu:prev,rule:&PREV}}
  for c in self.llc[prev.ix()].and(&a).iter_wrap(prev.ix()){ if cx.sh.idle_cpu(c){return Placement{cpu:c,rule:&IDLE}}}
  Placement{cpu:if a.has(prev){prev}else{a.first().unwrap()},rule:&PREV}}
 fn migrate_task_rq(&mut self,_:&mut Cx,_:TaskId,_:Cpu){}
 fn enqueue_task(&mut self,cx:&mut Cx,cpu:Cpu,p:TaskId,_:EnqueueFlags){cx.charge(Func::EnqueueTask,200);cx.sh.loads[cpu.ix()].nr_running+=1; if cx.sh.task(p).policy==Policy::Stop{self.q[cpu.ix()].push_front(p)}else{self.q[cpu.ix()].push_back(p)}}
 fn dequeue_task(&mut self,cx:&mut Cx,cpu:Cpu,p:TaskId,_:DequeueFlags)->bool{cx.charge(Func::DequeueTask,200);cx.sh.loads[cpu.ix()].nr_running-=1; if cx.sh.rq(cpu).curr!=p{self.q[cpu.ix()].retain(|&x|x!=p)};true}
 fn wakeup_preempt(&mut self,cx:&mut Cx,cpu:Cpu,p:TaskId,_:WakeFlags){ if cx.sh.curr_is_idle(cpu)||cx.sh.task(p).policy==Policy::Stop{cx.resched_curr(cpu,&WK)}}
 fn pick_next_task(&mut self,cx:&mut Cx,cpu:Cpu)->Pick{cx.charge(Func::PickNext,100);let prev=cx.sh.rq(cpu).curr; if prev.ix()>=cx.sh.rqs.len()&&cx.sh.task(prev).state==TaskState::Running&&cx.sh.task(prev).on_rq{self.q[cpu.ix()].push_back(prev)}
  match self.q[cpu.ix()].pop_front(){Some(p)=>{self.slice[cpu.ix()]=0;Pick::Task(p)},None=>Pick::Nothing}}
 fn set_idle(&mut self,_:&mut Cx,_:Cpu){}
 fn set_policy(&mut self,_:&mut Cx,_:TaskId,_:Policy,_:i8){}
 fn yield_task(&mut self,_:&mut Cx,_:Cpu){}
 fn task_tick(&mut self,cx:&mut Cx,cpu:Cpu)->TickWork{ cx.charge(Func::Tick,500);self.slice[cpu.ix()]+=1; if self.slice[cpu.ix()]>=1&&!self.q[cpu.ix()].is_empty(){cx.resched_curr(cpu,&SLICE)};TickWork::default()}
 fn tick_stopped(&mut self,_:&mut Cx,_:Cpu,_:bool){}
 fn balance_begin(&mut self,_:&mut Cx,_:Cpu,_:BalanceKind)->BalanceStep{BalanceStep::Done{pulled:0}}
 fn balance_continue(&mut self,_:&mut Cx,_:Cpu)->BalanceStep{BalanceStep::Done{pulled:0}}
 fn active_balance(&mut self,_:&mut Cx,_:Cpu)->Option<TaskId>{None}
 fn take_moved(&mut self)->&mut Vec<Moved>{&mut self.moved}
}
