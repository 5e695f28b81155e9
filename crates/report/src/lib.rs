//! What people read: tables and pages. No statistics are made here.

pub mod check;
