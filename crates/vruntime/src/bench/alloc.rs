//! A global allocator that counts, for the feature `count-allocations`.
#![allow(unsafe_code)] // `GlobalAlloc` is an unsafe trait; every call goes to `System` unchanged.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// The system's allocator with a counter.
pub struct CountingAllocator;

// SAFETY: every method forwards its arguments unchanged to `System`, which keeps the contract.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `System` with this layout.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: `at` came from `System` with this layout.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Allocations so far; always 0 in a build without the feature.
pub fn allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}
