//! A global allocator that counts, for the feature `count-allocations`.
#![allow(unsafe_code)] // `GlobalAlloc` is an unsafe trait; every call goes to `System` unchanged.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static BYTES_PEAK: AtomicU64 = AtomicU64::new(0);
static BYTES_AT_RESET: AtomicU64 = AtomicU64::new(0);

fn taken(size: usize) {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    let now = BYTES.fetch_add(size as u64, Ordering::Relaxed) + size as u64;
    BYTES_PEAK.fetch_max(now, Ordering::Relaxed);
}

fn given_back(size: usize) {
    BYTES.fetch_sub(size as u64, Ordering::Relaxed);
}

/// The system's allocator with a counter.
pub struct CountingAllocator;

// SAFETY: every method forwards its arguments unchanged to `System`, which keeps the contract.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }
    // The default would write zeros to pages that `System` maps as zeros, and make them resident.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: the caller keeps `alloc_zeroed`'s contract.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        given_back(layout.size());
        // SAFETY: `at` came from `System` with this layout.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        given_back(layout.size());
        taken(size);
        // SAFETY: `at` came from `System` with this layout.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Allocations so far; always 0 in a build without the feature.
pub fn allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// From here on [`bytes_peak_since_reset`] counts.
pub fn reset_bytes_peak() {
    let now = BYTES.load(Ordering::Relaxed);
    BYTES_AT_RESET.store(now, Ordering::Relaxed);
    BYTES_PEAK.store(now, Ordering::Relaxed);
}

/// Bytes in use at the worst moment since [`reset_bytes_peak`], beyond those at that moment.
pub fn bytes_peak_since_reset() -> u64 {
    let before = BYTES_AT_RESET.load(Ordering::Relaxed);
    BYTES_PEAK.load(Ordering::Relaxed).saturating_sub(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is asked for zeroed is not written: it takes memory when it is used.
    #[test]
    fn zeroed_memory_is_not_resident() {
        const BYTES: usize = 512 << 20;
        let resident = || {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        let layout = Layout::from_size_align(BYTES, 8).unwrap();
        let before = resident();
        // SAFETY: the layout has a size, and what comes is given back with it.
        unsafe {
            let at = CountingAllocator.alloc_zeroed(layout);
            assert!(!at.is_null() && *at == 0);
            assert!(resident() < before + BYTES / 2);
            CountingAllocator.dealloc(at, layout);
        }
    }
}
