//! The cost of metering on this machine: `cargo run --release -p lockmeter --example overhead`.

fn main() {
    let cost = lockmeter::overhead();
    println!(
        "lock and unlock of parking_lot's mutex  {:6.2} ns",
        cost.plain_ns
    );
    println!(
        "more with the meter switched off        {:6.2} ns",
        cost.off_ns
    );
    println!(
        "more with the meter switched on         {:6.2} ns",
        cost.on_ns
    );
}
