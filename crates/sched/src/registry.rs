//! (stub)
use crate::{scheduler::Scheduler,domains::Domains,release::Release}; use vruntime_machine::Topology;
pub const NAMES:&[&str]=&["rr"];
pub fn scheduler(_n:&str,t:&Topology,_d:&Domains,_r:&Release)->Option<Box<dyn Scheduler>>{Some(Box::new(crate::rr::Rr::new(t)))}
