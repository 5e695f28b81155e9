.PHONY: demo test check bench tools
demo: tools
	cargo run --release -q -p vruntime -- compare -m spr-2s -k v6.1 -k v6.12 -w 'hackbench -g 20 -f 20 --pipe --threads -l 20000 -s 100' --seeds 3 --warmup 100ms --window 100ms
test: tools
	cargo test --workspace
check: tools
	cargo run -q -p xtask -- check
bench: tools
	cargo run --release -q -p vruntime --features count-allocations -- bench
tools:
	@command -v cargo >/dev/null || { echo "cargo not found: install Rust 1.88 or newer (https://rustup.rs)"; exit 2; }
	@command -v cc >/dev/null || { echo "cc not found: install a C compiler, which links Rust programs (apt-get install gcc)"; exit 2; }
