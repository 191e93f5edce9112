//! The command `extant-bench`, of which all but the allocator is in the library.
#![forbid(unsafe_code)]

/// Inodes and names are allocated and freed by the hundred thousand, from many threads. The system's allocator takes a
/// fifth of the time of a create, this one a twentieth.
#[global_allocator]
static ALLOCATOR: extant_allocator::MiMalloc = extant_allocator::MiMalloc;

fn main() -> std::process::ExitCode {
    extant_allocator::keep_freed_memory();
    extant_bench::command::main()
}
