.PHONY: demo test check bench
demo:
	cargo run --release -q -p vruntime -- compare -m spr-2s -k v6.1 -k v6.12 -w 'hackbench -g 20 -f 20 --pipe --threads -l 20000 -s 100' --seeds 3 --warmup 100ms --window 100ms
test:
	cargo test --workspace
check:
	cargo run -q -p xtask -- check
bench:
	cargo run --release -q -p vruntime --features count-allocations -- bench
